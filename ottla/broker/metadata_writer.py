"""Writes to the metadata store, with the revisions that this broker knows: no one's change is overwritten unseen."""

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from ottla.cluster.encoding import changes_between
from ottla.cluster.store import (
    ABSENT,
    Change,
    CommitResult,
    Committed,
    Conflict,
    Entry,
    Expect,
    LeaseLost,
    MetadataStore,
    Put,
    Snapshot,
    StoreError,
    Unavailable,
)
from ottla.protocol.errors import ErrorCode, KafkaError, KafkaStorageError, error_for


class MetadataWriter:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._revisions: dict[str, int] = {}

    def read_all(self, done: Callable[[Sequence[Entry]], None]) -> None:
        def remember(result: Snapshot | Unavailable) -> None:
            if isinstance(result, Unavailable):
                raise StoreError(result.reason)
            self._revisions = {entry.key: entry.revision for entry in result.entries}
            done(result.entries)

        self._store.read("", remember)

    def replace(
        self, old: Mapping[str, bytes], new: Mapping[str, bytes], done: Callable[[KafkaError | None], None]
    ) -> None:
        """Make `new` out of `old` in one transaction; `done` gets None, or the error for whoever asked."""
        changes = changes_between(old, new)
        if not changes:
            done(None)
            return
        expected = [Expect(change.key, self._revisions.get(change.key, ABSENT)) for change in changes]
        self._store.commit(expected, changes, lambda result: done(self._took(changes, result)))

    def _took(self, changes: Sequence[Change], result: CommitResult) -> KafkaError | None:
        match result:
            case Committed(revision):
                for change in changes:
                    if isinstance(change, Put):
                        self._revisions[change.key] = revision
                    else:
                        self._revisions.pop(change.key, None)
                return None
            case Conflict(key):
                return error_for(ErrorCode.NOT_CONTROLLER, f"{key} was changed by another broker, try again")
            case Unavailable(reason):
                return KafkaStorageError(reason)
            case LeaseLost():
                return KafkaStorageError("a lease was lost")
            case _:
                assert_never(result)
