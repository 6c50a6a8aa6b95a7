"""Where the cluster's metadata lives: keys with values and revisions, changed by compare-and-set.

Answers come through callbacks, because a store may be another process: the embedded one calls back before the call
returns, one across the network later. Callbacks come in the order of the calls.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

ABSENT = 0


class StoreError(Exception):
    """The store cannot be opened or read: one sentence for the operator."""


class Entry(NamedTuple):
    """A key as last written; `revision` is that of the transaction that wrote it and grows with every transaction."""

    key: str
    value: bytes
    revision: int


class Expect(NamedTuple):
    """The transaction holds only if the key was last written at this revision (ABSENT: is not there)."""

    key: str
    revision: int


class Put(NamedTuple):
    key: str
    value: bytes


class Delete(NamedTuple):
    key: str


Change = Put | Delete


class Committed(NamedTuple):
    """All changes are durable and visible, at this revision."""

    revision: int


class Conflict(NamedTuple):
    """A key was not as expected; nothing has changed."""

    key: str


class Unavailable(NamedTuple):
    """The store did not take the transaction; whether it will be seen later is unknown only for a remote store."""

    reason: str


CommitResult = Committed | Conflict | Unavailable


class MetadataStore(Protocol):
    """Linearizable: a read sees every transaction whose answer was given before it was asked for."""

    def read(self, prefix: str, done: Callable[[Sequence[Entry]], None]) -> None:
        """All entries whose key starts with `prefix`, sorted by key."""
        ...

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        """Apply all changes at once if every expectation holds, else none."""
        ...

    def close(self) -> None: ...
