"""A metadata store that others use as well, as an etcd may be: their transactions count, and no broker sees them."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.cluster.store import (
    Change,
    Changes,
    CommitResult,
    Conflict,
    Entry,
    Expect,
    Put,
    Snapshot,
    Unavailable,
    Watch,
    WatchEvent,
)

OURS, OTHERS = "ottla/", "others/"


class OursIn:
    """The keys of the cluster in such a store, or in a session of it. What is about no key goes straight there."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def session(self) -> "OursIn":
        return OursIn(self._store.session())

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        def found(result: Snapshot | Unavailable) -> None:
            if isinstance(result, Snapshot):
                result = result._replace(entries=[_shortened(entry) for entry in result.entries])
            done(result)

        self._store.read(OURS + prefix, found)

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        def answered(result: CommitResult) -> None:
            done(Conflict(result.key.removeprefix(OURS)) if isinstance(result, Conflict) else result)

        self._store.commit(
            [each._replace(key=OURS + each.key) for each in expected],
            [each._replace(key=OURS + each.key) for each in changes],
            answered,
        )

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> Watch:
        def seen(event: WatchEvent) -> None:
            if isinstance(event, Changes):
                puts = tuple(_shortened(entry) for entry in event.puts)
                event = Changes(event.revision, puts, tuple(key.removeprefix(OURS) for key in event.deletes))
            deliver(event)

        watch: Watch = self._store.watch(OURS + prefix, from_revision, seen)
        return watch


def write_of_others(store: Any) -> None:
    """A transaction that is none of the cluster's business."""
    store.commit([], [Put(f"{OTHERS}key", b"value")], lambda _: None)


def _shortened(entry: Entry) -> Entry:
    return entry._replace(key=entry.key.removeprefix(OURS))
