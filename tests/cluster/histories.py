"""Histories of transactions for a metadata store, and a model that says what each of them does.

Run as a program, with a path and a seed, it commits such a history to a metadata file until it is killed, as a broker
does: on an event loop, with the file written in a thread. It prints a line for every answer.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.store import (
    ABSENT,
    Change,
    CommitResult,
    Committed,
    Conflict,
    Delete,
    Entry,
    Expect,
    Granted,
    Put,
    Snapshot,
    Transaction,
    Unavailable,
)

KEYS = tuple(f"key/{number}" for number in range(6))
# Of a store that was just opened.
FIRST_LEASE = 1
UNANSWERED_MAX = 8


class Durable(NamedTuple):
    """What a metadata file holds."""

    entries: tuple[Entry, ...]
    revision: int


class Model:
    """The store, in the plainest words: no groups, no threads, no file."""

    def __init__(self, durable: Durable) -> None:
        self.entries = {entry.key: entry for entry in durable.entries}
        self.revision = self._written_revision = durable.revision
        self._leased: set[str] = set()

    def commit(self, transaction: Transaction) -> CommitResult:
        for key, revision in transaction.expected:
            if self.revision_of(key) != revision:
                return Conflict(key)
        changes = [each for each in transaction.changes if isinstance(each, Put) or each.key in self.entries]
        before = self._in_file()
        if changes:
            self.revision += 1
        for change in changes:
            self._leased.discard(change.key)
            if isinstance(change, Delete):
                del self.entries[change.key]
                continue
            self.entries[change.key] = Entry(change.key, change.value, self.revision)
            if change.lease_id:
                self._leased.add(change.key)
        if self._in_file() != before:
            self._written_revision = self.revision
        return Committed(self.revision)

    def revision_of(self, key: str) -> int:
        return self.entries[key].revision if key in self.entries else ABSENT

    def durable(self) -> Durable:
        """What a crash leaves: no lease outlives the process."""
        return Durable(self._in_file(), self._written_revision)

    def _in_file(self) -> tuple[Entry, ...]:
        return tuple(entry for key, entry in sorted(self.entries.items()) if key not in self._leased)


def build_transaction(model: Model, changes: Iterable[tuple[str, str]], guess: str | None, value: bytes) -> Transaction:
    """`changes` are keys and the new value of each; `guess` is right or wrong about the revision of the first."""
    made: list[Change] = []
    for key, kind in changes:
        made.append(Delete(key) if kind == "delete" else Put(key, value, FIRST_LEASE if kind == "lease" else 0))
    if guess is None:
        return Transaction((), tuple(made))
    revision = model.revision_of(made[0].key)
    return Transaction((Expect(made[0].key, revision if guess == "right" else revision + 1),), tuple(made))


KINDS = ("put", "put", "lease", "delete")
GUESSES = (None, "right", "right", "wrong")


def transactions(model: Model, seed: int) -> Iterator[tuple[Transaction, CommitResult]]:
    """Without end; `model` has made each when it is given."""
    rng = Random(seed)
    for number in count():
        keys = rng.sample(KEYS, rng.randint(1, 4))
        changes = [(key, rng.choice(KINDS)) for key in keys]
        value = f"{number} ".encode() * rng.choice((1, 100, 2000))
        transaction = build_transaction(model, changes, rng.choice(GUESSES), value)
        yield transaction, model.commit(transaction)


def line_of(result: CommitResult) -> str:
    return repr(result)


def load(store: EmbeddedStore) -> Durable:
    found: list[Snapshot | Unavailable] = []
    store.read("", found.append)
    (snapshot,) = found
    assert isinstance(snapshot, Snapshot)
    return Durable(tuple(snapshot.entries), snapshot.revision)


async def commit_until_killed(path: Path, seed: int) -> None:
    loop = asyncio.get_running_loop()

    def offload(work: Callable[[], None], done: Callable[[], None]) -> None:
        loop.run_in_executor(None, work).add_done_callback(lambda _: done())

    store = EmbeddedStore(path, post=loop.call_soon, offload=offload)
    leases: list[Granted | Unavailable] = []
    store.grant(60_000, leases.append)
    model = Model(load(store))
    may_commit = asyncio.Semaphore(UNANSWERED_MAX)

    def answered(result: CommitResult) -> None:
        print(line_of(result), flush=True)
        may_commit.release()

    for transaction, _ in transactions(model, seed):
        await may_commit.acquire()
        store.commit(transaction.expected, transaction.changes, answered)


if __name__ == "__main__":
    asyncio.run(commit_until_killed(Path(sys.argv[1]), int(sys.argv[2])))
