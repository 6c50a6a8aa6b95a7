"""The broker's log: structlog, imported with the first event.

Importing structlog costs more than all the rest of a start, and a broker that has nothing to say need not pay for it.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
LOG_FORMATS = ("console", "json")


class LazyLog:
    """What a structlog logger does, as far as the broker uses it."""

    __slots__ = ("_fields", "_format", "_level", "_logger", "_stream")

    def __init__(
        self,
        log_format: str = "console",
        level: str = "info",
        stream: TextIO | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """`fields` go with every event."""
        self._format = log_format
        self._level = LEVELS[level]
        self._stream = stream
        self._fields = fields or {}
        self._logger: Any = None

    def with_fields(self, **fields: Any) -> "LazyLog":
        """The same log for one of several that write to it."""
        log = LazyLog(self._format, stream=self._stream, fields={**self._fields, **fields})
        log._level = self._level
        return log

    def debug(self, event: str, **fields: Any) -> None:
        self._write(LEVELS["debug"], "debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(LEVELS["info"], "info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(LEVELS["warning"], "warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(LEVELS["error"], "error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._write(LEVELS["error"], "error", event, {**fields, "exc_info": True})

    def prepare(self) -> None:
        """Do the importing now, perhaps in a thread, so that the first event does not wait for it."""
        if self._logger is None:
            self._logger = _make_logger(self._format, self._stream or sys.stderr)

    def _write(self, level: int, method: str, event: str, fields: dict[str, Any]) -> None:
        if level >= self._level:
            self.prepare()
            # A terminal that is gone, a full disk: the broker goes on without its log.
            with suppress(OSError):
                getattr(self._logger, method)(event, **{**self._fields, **fields})


def _make_logger(log_format: str, stream: TextIO) -> Any:
    import structlog

    rendering: list[Any]
    if log_format == "json":
        rendering = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        rendering = [
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    return structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
    )
