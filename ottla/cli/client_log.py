"""The client library's own log, told to people: one line per event, never a stack."""

import logging
import sys

from aiokafka.errors import GroupCoordinatorNotAvailableError, GroupLoadInProgressError

# Who has seen so many has seen enough.
MESSAGES_MAX = 100


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"ottla: {record.getMessage()}".splitlines()[0]


class _Once(logging.Filter):
    """A broker that is away is reported once, not with every attempt to reach it."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message not in self._told and len(self._told) < MESSAGES_MAX
        if is_new:
            self._told.add(message)
        return is_new


def _is_lasting(record: logging.LogRecord) -> bool:
    """A coordinator in the making, as the first group of a cluster meets it, is not an error: the client asks again."""
    passing = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError)
    return not (isinstance(record.args, tuple) and any(isinstance(argument, passing) for argument in record.args))


def show_errors_only() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    handler.addFilter(_is_lasting)
    handler.addFilter(_Once())
    logger = logging.getLogger("aiokafka")
    logger.handlers = [handler]
    logger.setLevel(logging.ERROR)
    logger.propagate = False
