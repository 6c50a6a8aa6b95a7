"""The client library's own log, told to people: one line per event, never a stack."""

import logging
import sys


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"ottla: {record.getMessage()}".splitlines()[0]


class _NotTwiceInARow(logging.Filter):
    """A broker that is away is reported once, not with every attempt to reach it."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message != self._last
        self._last = message
        return is_new


def show_errors_only() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    handler.addFilter(_NotTwiceInARow())
    logger = logging.getLogger("aiokafka")
    logger.handlers = [handler]
    logger.setLevel(logging.ERROR)
    logger.propagate = False
