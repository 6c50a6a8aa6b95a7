"""Histories as JSON lines: one event each, with its class as `event`, and `wall_ms` for a person who reads them."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.histories.events import EVENTS, Event

_BY_NAME: dict[str, type[Event]] = {kind.__name__: kind for kind in EVENTS}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in EVENTS}


def now_us() -> int:
    """The clock that the processes of one machine share and that never goes back."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def to_json(event: Event, wall_ms: int | None = None) -> str:
    content: dict[str, Any] = {"event": type(event).__name__}
    content.update((name, getattr(event, name)) for name in _FIELDS[type(event)])
    if wall_ms is not None:
        content["wall_ms"] = wall_ms
    return json.dumps(content, separators=(",", ":"))


def from_json(line: str) -> Event:
    """Raises ValueError on a line that is no event."""
    content = json.loads(line)
    kind = _BY_NAME.get(content.pop("event", "")) if isinstance(content, dict) else None
    if kind is None:
        raise ValueError(f"no event: {line!r}")
    content.pop("wall_ms", None)
    try:
        return kind(**content)
    except TypeError as error:
        raise ValueError(f"{error}: {line!r}") from None


def read_histories(paths: Iterable[Path]) -> Iterator[Event]:
    """All events of the files. A last line that its writer did not finish is left out: its process was killed."""
    for path in paths:
        with path.open() as lines:
            yield from (from_json(line) for line in lines if line.endswith("\n"))


class HistoryFile:
    """Appends events to a file of this process's own; from any of its threads."""

    def __init__(self, path: Path) -> None:
        # Line by line, so that a killed client leaves behind all that it knew.
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        line = to_json(event, int(time.time() * 1000))
        with self._lock:
            self._file.write(line + "\n")

    def __enter__(self) -> "HistoryFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()
