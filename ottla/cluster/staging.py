"""Transactions of the embedded store that are decided, one on top of the other, and visible to no caller yet.

Those of a group are written to the file together. Until that has succeeded readers, watches and leases see what was
before.
"""

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.store import ABSENT, NO_LEASE, Change, Conflict, Delete, Entry, Expect, LeaseLost, Put


class Staged(NamedTuple):
    """What a transaction does. Without changes it is none, and has the revision of the one before it."""

    revision: int
    changes: Sequence[Change]
    is_for_the_file: bool


class Staging:
    def __init__(
        self, entries: Mapping[str, Entry], leased: Container[str], leases: Container[int], revision: int
    ) -> None:
        """`leased` are the keys under a lease, `leases` the ids of those that run."""
        self._entries = entries
        self._leased = leased
        self._leases = leases
        self._revision = revision
        # What the staged transactions have made of keys: their revision, and whether they are under a lease.
        self._staged: dict[str, tuple[int, bool]] = {}

    def decide(self, expected: Sequence[Expect], changes: Sequence[Change]) -> Staged | Conflict | LeaseLost:
        assert len({change.key for change in changes}) == len(changes), "a transaction changes a key once"
        for each in expected:
            if self._revision_of(each.key) != each.revision:
                return Conflict(each.key)
        for change in changes:
            if isinstance(change, Put) and change.lease_id != NO_LEASE and change.lease_id not in self._leases:
                return LeaseLost()
        return self._stage(changes)

    def _stage(self, changes: Sequence[Change]) -> Staged:
        """As etcd does: what deletes only what is not there is no transaction and has no revision."""
        effective = [change for change in changes if isinstance(change, Put) or self._is_there(change.key)]
        if not effective:
            return Staged(self._revision, (), is_for_the_file=False)
        # The revision of what is under a lease need not outlive the process either: no caller is left who has seen it.
        is_for_the_file = not all(self._is_fleeting(change) for change in effective)
        self._revision += 1
        for change in effective:
            if isinstance(change, Delete):
                self._staged[change.key] = ABSENT, False
            else:
                self._staged[change.key] = self._revision, change.lease_id != NO_LEASE
        return Staged(self._revision, effective, is_for_the_file)

    def _is_fleeting(self, change: Change) -> bool:
        """Nothing of it is in the file, or goes into it."""
        was_in_file = self._is_there(change.key) and not self._is_leased(change.key)
        return not was_in_file and (isinstance(change, Delete) or change.lease_id != NO_LEASE)

    def _is_there(self, key: str) -> bool:
        return self._revision_of(key) != ABSENT

    def _is_leased(self, key: str) -> bool:
        staged = self._staged.get(key)
        return key in self._leased if staged is None else staged[1]

    def _revision_of(self, key: str) -> int:
        staged = self._staged.get(key)
        if staged is not None:
            return staged[0]
        entry = self._entries.get(key)
        return ABSENT if entry is None else entry.revision
