"""The broker's log: structlog, imported with the first event.

Importing structlog costs more than all the rest of a start, and a broker that has nothing to say need not pay for it.
"""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

# Of one event. Further ones are left out, and counted in the first line of a later second.
LINES_PER_SECOND = 20
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LazyLog:
    """What a structlog logger does, as far as the broker uses it."""

    __slots__ = ("_fields", "_format", "_level", "_logger", "_rates", "_stream")

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
        # By event; those that write to one log share them.
        self._rates: dict[str, _Rate] = {}

    def with_fields(self, **fields: Any) -> "LazyLog":
        """The same log for one of several that write to it."""
        log = LazyLog(self._format, stream=self._stream, fields={**self._fields, **fields})
        log._level = self._level
        log._rates = self._rates
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
        if level < self._level:
            return
        suppressed = self._suppressed(event)
        if suppressed is None:
            return
        self.prepare()
        said = {name: value for name, value in {**self._fields, **fields}.items() if value is not None}
        if suppressed:
            said["suppressed"] = suppressed
        # A terminal that is gone, a full disk: the broker goes on without its log.
        with suppress(OSError):
            getattr(self._logger, method)(event, **said)

    def _suppressed(self, event: str) -> int | None:
        """How many lines of the event were left out before this one; None if this one is left out too."""
        second = time.monotonic_ns() // 1_000_000_000
        rate = self._rates.get(event)
        if rate is None or rate.second != second:
            self._rates[event] = _Rate(second)
            return 0 if rate is None else rate.suppressed
        rate.lines += 1
        if rate.lines <= LINES_PER_SECOND:
            return 0
        rate.suppressed += 1
        return None


class _Rate:
    """Of the lines of one event, in the second of the last one."""

    __slots__ = ("lines", "second", "suppressed")

    def __init__(self, second: int) -> None:
        self.second = second
        self.lines = 1
        self.suppressed = 0


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
