"""What produce and consume share: the options and the log of aiokafka, their client library, and an orderly end at
Ctrl-C."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from aiokafka.errors import GroupCoordinatorNotAvailableError, GroupLoadInProgressError

from ottla.broker.config.server_network import SASL_PLAINTEXT, SASL_SSL, SSL
from ottla.cli.client import ClientConfig

# More would hide what the command itself prints.
MESSAGES_MAX = 100


def library_options(config: ClientConfig) -> dict[str, Any]:
    """What a producer and a consumer are made with, whatever they do."""
    options: dict[str, Any] = {
        "bootstrap_servers": ",".join(map(str, config.bootstrap)),
        "client_id": "ottla",
        "request_timeout_ms": config.timeout_ms,
    }
    if config.tls is not None:
        options |= {"security_protocol": SSL, "ssl_context": config.tls}
    if config.login is not None:
        options |= {
            "security_protocol": SASL_PLAINTEXT if config.tls is None else SASL_SSL,
            "sasl_mechanism": config.login.mechanism,
            "sasl_plain_username": config.login.user,
            "sasl_plain_password": config.login.password.reveal(),
        }
    return options


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"ottla: {record.getMessage()}".splitlines()[0]


class _Once(logging.Filter):
    """A broker that is away is reported once, not with every attempt to reach it."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message not in self._shown and len(self._shown) < MESSAGES_MAX
        if is_new:
            self._shown.add(message)
        return is_new


def _is_lasting(record: logging.LogRecord) -> bool:
    """Not that of a coordinator that is not available yet, as for the first group of a cluster: the client retries."""
    passing = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError)
    return not (isinstance(record.args, tuple) and any(isinstance(argument, passing) for argument in record.args))


def _is_news(record: logging.LogRecord) -> bool:
    """Not what the library raises too: the command says it in one sentence."""
    return not record.getMessage().startswith("Unexpected error during InitProducerIdRequest")


def show_errors_only() -> None:
    """One line per error of the library on standard error, without a stack trace."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    handler.addFilter(_is_lasting)
    handler.addFilter(_is_news)
    handler.addFilter(_Once())
    logger = logging.getLogger("aiokafka")
    logger.handlers = [handler]
    logger.setLevel(logging.ERROR)
    logger.propagate = False


@contextmanager
def on_signals(*numbers: signal.Signals, act: Callable[[], None]) -> Generator[None]:
    """Call `act` on the loop at each of these signals, in place of what they do otherwise."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
