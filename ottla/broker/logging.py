"""The broker's log: structlog, imported with the first event.

Importing structlog costs more than all the rest of a start, and a broker that has nothing to say need not pay for it.
"""

import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from importlib import import_module
from types import ModuleType
from typing import Any, TextIO, cast

from ottla.protocol.errors import KafkaError

# Of one event. Further ones are left out, and counted in the first line of a later second.
LINES_PER_SECOND = 20
HELD_LINES_MAX = 200
ROOT = "ottla"
GROUP_LOGGER, REQUEST_LOGGER = "ottla.group", "ottla.request"
STORAGE_LOGGER, REPLICATION_LOGGER = "ottla.storage", "ottla.replication"
METADATA_LOGGER, ADMIN_LOGGER = "ottla.metadata", "ottla.admin"
SECURITY_LOGGER = "ottla.security"
LOGGERS = (
    ROOT,
    ADMIN_LOGGER,
    GROUP_LOGGER,
    METADATA_LOGGER,
    REPLICATION_LOGGER,
    REQUEST_LOGGER,
    SECURITY_LOGGER,
    STORAGE_LOGGER,
)
"""Those whose level can be altered at run time."""
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
LOG_FORMATS = ("console", "json")
# Of a text in a line: clients choose some of them.
FIELD_CHARACTERS_MAX = 256
# C0 and C1, delete, and what changes the direction of text: a terminal would obey them.
CONTROL_CODES = (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
_CONTROLS = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in CONTROL_CODES}


def cause_of(error: Exception) -> dict[str, Any]:
    """The field of an event that says why something failed: a sentence, or the traceback of what no code foresaw."""
    return {"why": str(error)} if isinstance(error, KafkaError) else {"exc_info": error}


class LazyLog:
    """What a structlog logger does, as far as the broker uses it."""

    __slots__ = (
        "_fields",
        "_fields_of_now",
        "_format",
        "_level",
        "_logger",
        "_loggers",
        "_name",
        "_owns_process",
        "_rates",
        "_stream",
        "levels",
    )

    def __init__(
        self,
        log_format: str = "console",
        level: str = "info",
        stream: TextIO | None = None,
        fields: Mapping[str, Any] | None = None,
        *,
        owns_process: bool = False,
    ) -> None:
        """`fields` go with every event. `owns_process`: no other code uses structlog here, so that it is imported
        without what the broker does not need of it."""
        self._format = log_format
        self._level = LEVELS[level]
        self._name = ROOT
        self.levels = LogLevels(self._level)
        """Of all that write to this log."""
        self.levels.logs.append(self)
        self._stream = stream
        self._owns_process = owns_process
        self._fields = fields or {}
        self._fields_of_now: Callable[[], Mapping[str, Any]] = dict
        self._logger: Any = None
        # By event; those that write to one log share them. None: no line is left out.
        self._rates: dict[str, _Rate] | None = {}
        self._loggers: dict[str, LazyLog] = {}

    def with_fields(self, **fields: Any) -> "LazyLog":
        """The same log for one of several that write to it."""
        fields = {**self._fields, **fields}
        log = LazyLog(self._format, stream=self._stream, fields=fields, owns_process=self._owns_process)
        log._name, log._level, log.levels, log._rates = self._name, self._level, self.levels, self._rates
        log._fields_of_now = self._fields_of_now
        self.levels.logs.append(log)
        return log

    def with_fields_of_now(self, fields: Callable[[], Mapping[str, Any]]) -> "LazyLog":
        """The same log for one whose events have these fields too, as they are at the event."""
        log = self.with_fields()
        log._fields_of_now = fields
        return log

    def logger(self, name: str) -> "LazyLog":
        """The same log for a subject that has a level of its own; one of `LOGGERS`."""
        log = self._loggers.get(name)
        if log is None:
            log = self._loggers[name] = copy(self)
            log._name, log._level = name, self.levels.of(name)
            self.levels.logs.append(log)
        return log

    def without_limit(self) -> "LazyLog":
        """The same log for one who limits its lines by itself: here none of them is left out."""
        log = copy(self)
        log._rates = None
        self.levels.logs.append(log)
        return log

    @property
    def storage(self) -> "LazyLog":
        return self.logger(STORAGE_LOGGER)

    @property
    def replication(self) -> "LazyLog":
        return self.logger(REPLICATION_LOGGER)

    @property
    def metadata(self) -> "LazyLog":
        return self.logger(METADATA_LOGGER)

    @property
    def security(self) -> "LazyLog":
        return self.logger(SECURITY_LOGGER)

    def level_changed(self) -> None:
        self._level = self.levels.of(self._name)

    def writes(self, level: str) -> bool:
        """Whether an event of the level, one of `LEVELS`, gets a line."""
        return LEVELS[level] >= self._level

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
            if self._owns_process:
                _import_structlog_without_rich()
            self._logger = _make_logger(self._format, self._stream or sys.stderr)

    def _write(self, level: int, method: str, event: str, fields: dict[str, Any]) -> None:
        if level < self._level:
            return
        suppressed = self._suppressed(event)
        if suppressed is None:
            return
        said: dict[str, Any] = {"logger": self._name}
        given = {**self._fields, **self._fields_of_now(), **fields}
        said |= {name: printable(value) for name, value in given.items() if value is not None}
        if suppressed:
            said["suppressed"] = suppressed
        error = sys.exc_info()[1] if fields.get("exc_info") is True else fields.get("exc_info")
        if error is not None:
            said["error_id"] = error_id(error)
        held = self.levels.held
        if held is not None:
            if level < LEVELS["warning"] and len(held) < HELD_LINES_MAX:
                held.append((self, method, event, {**said, "timestamp": _now()}))
                return
            self.release()
        self._emit(method, event, said)

    def hold(self) -> None:
        """Lines below warnings are kept until `release`, for a moment in which importing structlog would be felt."""
        if self._logger is None:
            self.levels.held = []

    def release(self) -> None:
        """What was kept is written, with the time at which it was said."""
        held, self.levels.held = self.levels.held, None
        for log, method, event, said in held or ():
            log._emit(method, event, said)

    def _emit(self, method: str, event: str, said: dict[str, Any]) -> None:
        self.prepare()
        # A terminal that is gone, a full disk: the broker goes on without its log.
        with suppress(OSError):
            getattr(self._logger, method)(event, **said)

    def _suppressed(self, event: str) -> int | None:
        """How many lines of the event were left out before this one; None if this one is left out too."""
        if self._rates is None:
            return 0
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


class LogLevels:
    """The levels of all loggers. Each log keeps its own, so that a line that is not written costs one comparison."""

    def __init__(self, root: int) -> None:
        self.logs: list[LazyLog] = []
        self.held: list[tuple[LazyLog, str, str, dict[str, Any]]] | None = None
        """Lines that wait; None while they are written at once."""
        self.on_change: list[Callable[[], None]] = []
        """Called when they have changed, for those who keep what follows from them."""
        self._at_start = root
        self._levels: dict[str, int] = {ROOT: root}

    def of(self, name: str) -> int:
        """A logger without a level of its own has that of the root."""
        return self._levels.get(name, self._levels[ROOT])

    def set(self, name: str, level: int | None) -> None:
        """None: that of the root, and for the root, the one of the start."""
        if level is not None:
            self._levels[name] = level
        elif name == ROOT:
            self._levels[ROOT] = self._at_start
        else:
            self._levels.pop(name, None)
        for log in self.logs:
            log.level_changed()
        for changed in self.on_change:
            changed()

    def reset(self) -> None:
        """As they were at the start."""
        for name in LOGGERS:
            self.set(name, None)


class _Rate:
    """Of the lines of one event, in the second of the last one."""

    __slots__ = ("lines", "second", "suppressed")

    def __init__(self, second: int) -> None:
        self.second = second
        self.lines = 1
        self.suppressed = 0


def printable(value: Any) -> Any:
    """A value of a field as it may be written: texts without control characters, and not longer than
    FIELD_CHARACTERS_MAX."""
    if isinstance(value, str):
        if len(value) > FIELD_CHARACTERS_MAX:
            value = f"{value[:FIELD_CHARACTERS_MAX]}… ({len(value) - FIELD_CHARACTERS_MAX} characters more)"
        return value if value.isprintable() else value.translate(_CONTROLS)
    if isinstance(value, list | tuple | set | frozenset):
        return [printable(each) for each in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        return {printable(key): printable(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    return value


def error_id(error: BaseException) -> str:
    """The same for all errors of one kind that were raised in one place, so that they can be counted and searched."""
    where = ""
    # Not `extract_tb`, which reads the source.
    for frame, line in traceback.walk_tb(error.__traceback__):
        where = f"{frame.f_code.co_filename}:{line}"
    return f"{zlib.crc32(f'{type(error).__name__} {where}'.encode()):08x}"


def _import_structlog_without_rich() -> None:
    """structlog imports rich if it is there, for tracebacks in colour, of which the broker has none: four fifths of the
    memory and of the time that its import takes."""
    is_hidden = "rich" not in sys.modules
    if is_hidden:
        # Python then says that there is none.
        sys.modules["rich"] = cast("ModuleType", None)
    try:
        import_module("structlog")
    finally:
        if is_hidden:
            # Another thread may have hidden it at the same moment.
            sys.modules.pop("rich", None)


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
            _stamped,
            _in_order,
            *rendering,
        ],
    )


def _now() -> str:
    return f"{datetime.now(UTC).replace(tzinfo=None).isoformat()}Z"


def _stamped(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A line that was kept has its time already."""
    fields.setdefault("timestamp", _now())
    return fields


def _in_order(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
    """What every line has comes first, for people who read it as it is."""
    return {**{name: fields[name] for name in ("timestamp", "level", "logger", "event")}, **fields}
