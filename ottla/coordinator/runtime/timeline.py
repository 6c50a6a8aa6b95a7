"""State that records change as soon as they are appended, and that others see once they are committed.

A `TimelineMap` has two views. *Latest* has the writes of every append: the next step decides on it. *Committed* has
those that the high watermark has passed, and is what may be shown (describe, list, fetch). While an append is open,
each key that it wrote has a version above the committed value:

    committed   k -> 1
    append 7    k -> 2        committed(k) = 1, latest(k) = 3
    append 8    k -> 3

An append that is committed turns its versions into committed values, one that failed takes its versions out. Both views
are then what replaying the log gives, even if a later append is in the log and an earlier one is not. Later appends
stand later in the log, so committing one leaves nothing of what earlier ones wrote to the same key (docs/semantics
§9.2.7).

Values must be immutable: a change to one is a new value.
"""

from collections.abc import Generator, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Timeline:
    """The open appends of one partition, and what each has written to the maps that were made with this timeline."""

    def __init__(self) -> None:
        self._maps: list[TimelineMap[Any, Any]] = []
        self._writes: dict[int, dict[tuple[TimelineMap[Any, Any], Hashable], None]] = {}
        self._writing: int | None = None

    @contextmanager
    def writing(self, append_id: int) -> Generator[None]:
        """What is written inside belongs to this append. Outside, writes are committed: the log is being loaded."""
        assert self._writing is None, f"append {self._writing} is still being written"
        self._writing = append_id
        try:
            yield
        finally:
            self._writing = None

    def commit(self, append_id: int) -> None:
        """The high watermark has passed the records of the append."""
        for timeline_map, key in self._writes.pop(append_id, {}):
            timeline_map.commit_version(append_id, key)

    def revert(self, append_id: int) -> None:
        """The records of the append are not in the log and will never be."""
        for timeline_map, key in self._writes.pop(append_id, {}):
            timeline_map.revert_version(append_id, key)

    def clear(self) -> None:
        """The partition is led elsewhere, or could not be loaded."""
        self._writes.clear()
        for timeline_map in self._maps:
            timeline_map.clear()

    def register(self, timeline_map: "TimelineMap[Any, Any]") -> None:
        self._maps.append(timeline_map)

    def note_write(self, timeline_map: "TimelineMap[Any, Any]", key: Hashable) -> int | None:
        """The append that writes; None while the log is being loaded."""
        if self._writing is not None:
            self._writes.setdefault(self._writing, {})[timeline_map, key] = None
        return self._writing


class _Removed:
    pass


_REMOVED = _Removed()


class TimelineMap(Generic[K, V]):
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._committed: dict[K, V] = {}
        # Invariant: of each key, one version per open append that wrote it, in the order of the appends.
        self._versions: dict[K, list[tuple[int, V | _Removed]]] = {}
        timeline.register(self)

    def put(self, key: K, value: V) -> None:
        self._write(key, value)

    def remove(self, key: K) -> None:
        self._write(key, _REMOVED)

    def latest(self, key: K) -> V | None:
        versions = self._versions.get(key)
        if versions is None:
            return self._committed.get(key)
        _, value = versions[-1]
        return None if isinstance(value, _Removed) else value

    def committed(self, key: K) -> V | None:
        return self._committed.get(key)

    def latest_items(self) -> Iterator[tuple[K, V]]:
        for key, value in self._committed.items():
            if key not in self._versions:
                yield key, value
        for key, versions in self._versions.items():
            _, written = versions[-1]
            if not isinstance(written, _Removed):
                yield key, written

    def committed_items(self) -> Iterator[tuple[K, V]]:
        yield from self._committed.items()

    def _write(self, key: K, value: V | _Removed) -> None:
        append_id = self._timeline.note_write(self, key)
        if append_id is None:
            self._set_committed(key, value)
            return
        versions = self._versions.setdefault(key, [])
        if versions and versions[-1][0] == append_id:
            versions.pop()
        versions.append((append_id, value))

    def commit_version(self, append_id: int, key: K) -> None:
        versions = self._versions.get(key, [])
        for index, (version_id, value) in enumerate(versions):
            if version_id == append_id:
                self._set_committed(key, value)
                self._set_versions(key, versions[index + 1 :])

    def revert_version(self, append_id: int, key: K) -> None:
        versions = self._versions.get(key, [])
        self._set_versions(key, [version for version in versions if version[0] != append_id])

    def clear(self) -> None:
        self._committed.clear()
        self._versions.clear()

    def _set_committed(self, key: K, value: V | _Removed) -> None:
        if isinstance(value, _Removed):
            self._committed.pop(key, None)
        else:
            self._committed[key] = value

    def _set_versions(self, key: K, versions: list[tuple[int, V | _Removed]]) -> None:
        if versions:
            self._versions[key] = versions
        else:
            self._versions.pop(key, None)
