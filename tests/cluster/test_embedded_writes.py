"""The embedded store whose file is written in a thread: what is visible when, and what follows from a failed write."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.metadata_file import MetadataFile
from ottla.cluster.store import (
    ABSENT,
    Change,
    Changes,
    Committed,
    Conflict,
    Delete,
    Entry,
    Expect,
    LeaseLost,
    Put,
    Unavailable,
)
from ottla.timer.wheel import TimingWheel
from tests.cluster.stores import Clock


class Machine:
    """A store with a thread and an event loop, neither of which runs by itself."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.wheel = TimingWheel()
        self.steps: deque[Callable[[], None]] = deque()
        self.writes: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self.groups: list[int] = []
        self.refused = ""
        write = MetadataFile.write

        def written(file: MetadataFile, transactions: Sequence[tuple[Sequence[Change], int]]) -> str | None:
            self.groups.append(len(transactions))
            if any(change.key == self.refused for changes, _ in transactions for change in changes):
                return "disk I/O error"
            return write(file, transactions)

        monkeypatch.setattr(MetadataFile, "write", written)
        self.store = EmbeddedStore(
            path, clock=self.clock, wheel=self.wheel, post=self.steps.append, offload=self._offload
        )
        self.answers: list[Any] = []

    def _offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.writes.append((work, done))

    def commit(self, key: str, value: bytes = b"", *, lease_id: int = 0, expected: int | None = None) -> None:
        expects = [] if expected is None else [Expect(key, expected)]
        self.store.commit(expects, [Put(key, value, lease_id)], self.answers.append)

    def read(self) -> None:
        self.store.read("", lambda found: self.answers.append([entry.key for entry in found.entries]))

    def run_steps(self) -> None:
        while self.steps:
            self.steps.popleft()()

    def run(self) -> None:
        while self.writes or self.steps:
            self.run_steps()
            if self.writes:
                work, done = self.writes.popleft()
                work()
                done()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "meta.sqlite", monkeypatch)


def test_transaction_is_visible_and_answered_once_durable(machine: Machine) -> None:
    seen: list[Any] = []
    machine.store.watch("", 1, seen.append)
    machine.commit("a")
    machine.read()
    machine.run_steps()
    assert (machine.answers, seen) == ([], [])

    machine.run()
    assert machine.answers == [Committed(1), ["a"]]
    assert [event.revision for event in seen] == [1]


def test_transactions_that_wait_for_a_write_are_written_together(machine: Machine) -> None:
    for key in ("a", "b", "c", "d"):
        machine.commit(key)
    machine.run()

    assert machine.answers == [Committed(1), Committed(2), Committed(3), Committed(4)]
    assert machine.groups == [1, 3]


def test_a_transaction_of_a_group_is_decided_on_those_before_it(machine: Machine) -> None:
    machine.commit("first")
    machine.commit("a", expected=ABSENT)
    machine.commit("a", expected=ABSENT)
    machine.commit("a", expected=2)
    machine.run()

    assert machine.answers == [Committed(1), Committed(2), Conflict("a"), Committed(3)]


def test_a_group_that_cannot_be_written_is_tried_one_by_one(machine: Machine) -> None:
    """What was refused because of a transaction that failed is not refused any more."""
    machine.refused = "bad"
    machine.commit("first")
    machine.commit("a")
    machine.commit("bad", expected=ABSENT)
    machine.commit("bad", expected=ABSENT)
    machine.commit("b")
    machine.run()

    first, a, bad, again, b = machine.answers
    assert (first, a, b) == (Committed(1), Committed(2), Committed(3))
    assert isinstance(bad, Unavailable)
    assert isinstance(again, Unavailable)
    machine.read()
    machine.run()
    assert machine.answers[-1] == ["a", "b", "first"]


def test_written_transactions_are_reported_one_in_a_step(machine: Machine) -> None:
    for number in range(4):
        machine.commit(str(number))
    work, done = machine.writes.popleft()
    work()
    done()
    machine.run_steps()
    work, done = machine.writes.popleft()
    work()
    machine.steps.append(done)
    delivered_by_step: list[int] = []
    while machine.steps:
        before = len(machine.answers)
        machine.steps.popleft()()
        delivered_by_step.append(len(machine.answers) - before)

    assert max(delivered_by_step) == 1
    assert len(machine.answers) == 4


def test_lease_that_ends_during_a_write_removes_its_keys_too(machine: Machine) -> None:
    granted: list[Any] = []
    machine.store.grant(1000, granted.append)
    lease_id = granted[0].lease_id
    machine.store.commit([], [Put("kept", b""), Put("leased", b"", lease_id)], machine.answers.append)
    machine.clock.now = 1000
    machine.wheel.advance(1000)
    machine.store.keep_alive(lease_id, granted.append)
    assert isinstance(granted[1], LeaseLost)

    machine.run()
    machine.commit("late", lease_id=lease_id)
    machine.read()
    machine.run()
    assert machine.answers[0] == Committed(1)
    assert isinstance(machine.answers[1], LeaseLost)
    assert machine.answers[2] == ["kept"]


def test_no_answer_comes_after_a_close_during_a_write(machine: Machine, tmp_path: Path) -> None:
    machine.commit("a")
    machine.commit("b")
    work, done = machine.writes.popleft()
    work()
    machine.store.close()
    done()
    machine.commit("c")
    machine.run()

    assert machine.answers == []
    again = EmbeddedStore(tmp_path / "meta.sqlite")
    again.read("", lambda found: machine.answers.append([entry.key for entry in found.entries]))
    assert machine.answers == [["a"]]
    again.close()


def test_what_is_under_a_lease_waits_for_no_write(machine: Machine) -> None:
    granted: list[Any] = []
    machine.store.grant(1000, granted.append)
    machine.commit("a", lease_id=granted[0].lease_id)

    assert machine.answers == [Committed(1)]
    assert not machine.writes


def test_history_is_bounded_by_bytes_and_an_older_watch_fails() -> None:
    store = EmbeddedStore(history_bytes_max=10_000)
    for _ in range(3):
        store.commit([], [Put("a", bytes(4000))], lambda result: None)
    seen: list[Any] = []
    store.watch("", 1, seen.append)
    store.watch("", 2, seen.append)

    assert [(type(event).__name__, event.revision) for event in seen] == [
        ("Compacted", 2),
        ("Changes", 2),
        ("Changes", 3),
    ]


def test_what_is_kept_of_a_transaction_is_one_object() -> None:
    """Thousands of small ones of a load that is over would each hold a mebibyte of the process's memory."""
    transactions, keys = 100, 40
    store = EmbeddedStore()
    before = sys.getallocatedblocks()
    for number in range(transactions // 2):
        names = [f"topics/{number}-{index}" for index in range(keys)]
        store.commit([], [Put(name, bytes(8)) for name in names], lambda result: None)
        store.commit([], [Delete(name) for name in names], lambda result: None)
    more = sys.getallocatedblocks() - before
    seen: list[Any] = []
    store.watch("topics/49-7", 1, seen.append)

    assert more < 4 * transactions
    assert seen == [
        Changes(99, (Entry("topics/49-7", bytes(8), 99),), ()),
        Changes(100, (), ("topics/49-7",)),
    ]


def test_watch_too_far_behind_has_to_read_again() -> None:
    steps: deque[Callable[[], None]] = deque()
    store = EmbeddedStore(post=steps.append, history_bytes_max=10_000)
    seen: list[Any] = []
    store.watch("", 1, seen.append)
    # The loop makes transactions, and has yet to report them.
    for _ in range(3):
        store._watches.publish([Put("a", bytes(4000))], store._revision + 1)
        store._revision += 1
    store._watches.deliver_soon()
    while steps:
        steps.popleft()()

    assert [type(event).__name__ for event in seen] == ["Compacted"]
