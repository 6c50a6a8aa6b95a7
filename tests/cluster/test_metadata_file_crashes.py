"""What a crash leaves of the embedded store's file: all that was acknowledged, and nothing of half a transaction.

`OTTLA_STORE_CRASHES` multiplies how much is tried; `make nightly` sets it.
"""

import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.store import CommitResult, Committed, Put
from tests.cluster.histories import (
    GUESSES,
    KEYS,
    KINDS,
    UNANSWERED_MAX,
    Durable,
    Model,
    build_transaction,
    line_of,
    load,
    transactions,
)

MORE = int(os.environ.get("OTTLA_STORE_CRASHES", "1"))
EMPTY = Durable((), 0)

CHANGES = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(KINDS), min_size=1, max_size=4)
HISTORIES = st.lists(st.tuples(CHANGES, st.sampled_from(GUESSES), st.integers(1, 3000)), min_size=1, max_size=10)
History = list[tuple[dict[str, str], str | None, int]]


class Recorded:
    """A history committed to a file, with a copy of the file after each answer: what a kill at that moment leaves."""

    def __init__(self, directory: Path, history: History) -> None:
        self._path = directory / "meta.sqlite"
        self._store = EmbeddedStore(self._path)
        self._store.grant(60_000, lambda _: None)
        model = Model(EMPTY)
        self.expected = [EMPTY]
        self.copies: list[Path] = []
        self._copy()
        for changes, guess, size in history:
            transaction = build_transaction(model, changes.items(), guess, b"x" * size)
            answers: list[CommitResult] = []
            self._store.commit(transaction.expected, transaction.changes, answers.append)
            assert answers == [model.commit(transaction)]
            self.expected.append(model.durable())
            self._copy()
        self._store.close()

    def _copy(self) -> None:
        copy = self._path.parent / f"copy-{len(self.copies)}"
        copy.mkdir()
        for part in self._path.parent.glob("meta.sqlite*"):
            shutil.copy(part, copy)
        self.copies.append(copy / "meta.sqlite")


def reopened(path: Path) -> Durable:
    """What the file holds; what is committed next is later than all of that."""
    store = EmbeddedStore(path)
    found = load(store)
    answers: list[CommitResult] = []
    store.commit((), (Put("next", b""),), answers.append)
    store.close()
    assert answers == [Committed(found.revision + 1)]
    assert all(entry.revision <= found.revision for entry in found.entries)
    return found


@settings(max_examples=25 * MORE, deadline=None)
@given(HISTORIES)
def test_a_kill_after_any_transaction_leaves_exactly_those(history: History) -> None:
    with TemporaryDirectory() as directory:
        recorded = Recorded(Path(directory), history)
        for copy, expected in zip(recorded.copies, recorded.expected, strict=True):
            assert reopened(copy) == expected


@settings(max_examples=50 * MORE, deadline=None)
@given(HISTORIES, st.floats(0, 1), st.booleans())
def test_a_torn_write_leaves_whole_transactions(history: History, where: float, zeroed: bool) -> None:
    """Power is lost while the last blocks of SQLite's log are written: they are missing, or they are zeros."""
    with TemporaryDirectory() as directory:
        recorded = Recorded(Path(directory), history)
        logs = [copy.with_name("meta.sqlite-wal") for copy in recorded.copies]
        sizes = [log.stat().st_size for log in logs]
        first, last = sizes[0], sizes[-1]
        cut = first + int((last - first) * where)
        synced = max(number for number, size in enumerate(sizes) if size <= cut)
        os.truncate(logs[-1], cut)
        if zeroed:
            os.truncate(logs[-1], last)

        found = reopened(recorded.copies[-1])
        assert found in recorded.expected[synced : synced + 2]


def test_a_killed_process_has_written_all_that_it_answered(tmp_path: Path) -> None:
    """Several times in the same file, at a moment that differs by chance."""
    path, rng = tmp_path / "meta.sqlite", Random(7)
    durable = EMPTY
    for seed in range(4 * MORE):
        answers = answers_until_killed(path, seed, rng.randint(1, 80))
        possible = possible_after(durable, seed, answers)
        store = EmbeddedStore(path)
        durable = load(store)
        store.close()
        assert durable in possible, f"seed {seed} after {len(answers)} answers"


def answers_until_killed(path: Path, seed: int, count: int) -> list[str]:
    """Of a process that is killed when it has given so many; there may be more."""
    command = [sys.executable, "-m", "tests.cluster.histories", str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answers = list(islice(process.stdout, count))
        process.kill()
        answers += process.stdout
    assert len(answers) >= count, "the process ended by itself"
    return [answer.rstrip("\n") for answer in answers if answer.endswith("\n")]


def possible_after(before: Durable, seed: int, answers: list[str]) -> list[Durable]:
    """What the file may hold: the transactions that were answered, and some of those that were not."""
    model = Model(before)
    history = transactions(model, seed)
    assert answers == [line_of(result) for _, result in islice(history, len(answers))]
    return [model.durable(), *(model.durable() for _ in islice(history, UNANSWERED_MAX))]
