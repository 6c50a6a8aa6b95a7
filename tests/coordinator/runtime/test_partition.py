"""The runtime with a tenant that is no group: counters, whose records change the state when they are appended."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ottla.coordinator.runtime.effects import (
    Append,
    AppendCompleted,
    AppendFailed,
    CoordinatorRecord,
    Effect,
    Reply,
    SetTimer,
    TimerFired,
)
from ottla.coordinator.runtime.partition import CoordinatorPartition, Phase
from ottla.coordinator.runtime.step_context import StepContext
from ottla.coordinator.runtime.timeline import Timeline, TimelineMap
from ottla.protocol.errors import ErrorCode


class Add(NamedTuple):
    token: int
    name: str
    amount: int


class Show(NamedTuple):
    token: int
    name: str


class ShowAll(NamedTuple):
    """As ListGroups: what is committed."""

    token: int
    name: str = "all"


class Count(NamedTuple):
    """As a round of expiry: what the next step decides on."""

    token: int
    name: str = "all"


class Stored(NamedTuple):
    token: int
    result: int

    def completed(self, context: StepContext) -> None:
        context.reply(self.token, self.result)

    def failed(self, context: StepContext, error: ErrorCode) -> None:
        context.reply(self.token, error)


class Counters:
    """A step adds to the latest value, and removes one that has come to 0; what is shown is committed."""

    def __init__(self) -> None:
        self.context = StepContext()
        self.timeline = Timeline()
        self.values = TimelineMap[str, int](self.timeline)
        self.requests = {Add: self._add, Show: self._show, ShowAll: self._show_all, Count: self._count}
        self.events = {TimerFired: self._timer_fired}
        self.owners: list[str] = []

    def _add(self, context: StepContext, event: Add) -> None:
        total = (self.values.latest(event.name) or 0) + event.amount
        record = CoordinatorRecord(event.name.encode(), str(total).encode() if total else None)
        context.append(event.name, [record], Stored(event.token, total))

    def _show(self, context: StepContext, event: Show) -> None:
        context.reply(event.token, self.values.committed(event.name))

    def _show_all(self, context: StepContext, event: ShowAll) -> None:
        context.reply(event.token, dict(self.values.committed_items()))

    def _count(self, context: StepContext, event: Count) -> None:
        context.reply(event.token, dict(self.values.latest_items()))

    def _timer_fired(self, context: StepContext, event: TimerFired) -> None:
        context.set_timer(event.key, context.now_ms + 10)

    def request_error(self, request: Any) -> ErrorCode | None:
        return None if request.name else ErrorCode.INVALID_REQUEST

    def refusal(self, request: Any, error: ErrorCode) -> object:
        return error

    def replay(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int | None = None) -> None:
        if value is None:
            self.values.remove(key.decode())
        else:
            self.values.put(key.decode(), int(value))

    def replay_marker(self, producer_id: int, *, commit: bool) -> Iterator[None]:
        raise AssertionError("counters have no transactions")

    def on_committed(self, owner: str) -> None:
        self.owners.append(owner)

    def on_elected(self) -> Iterator[None]:
        self.context.set_timer("tick", 10)
        return iter(())

    def on_resigned(self) -> None:
        self.context.cancel_timer("tick")

    def clear(self) -> None:
        self.owners.clear()


def loaded(*records: tuple[str, int]) -> CoordinatorPartition[Counters]:
    partition = CoordinatorPartition(Counters())
    for offset, (name, value) in enumerate(records):
        partition.replay(name.encode(), str(value).encode(), offset)
    assert partition.finish_loading(0, 0) == [SetTimer("tick", 10)]
    return partition


def step(partition: CoordinatorPartition[Counters], event: Any) -> list[Effect]:
    return partition.step(event, 0, 0)


def add(partition: CoordinatorPartition[Counters], token: int, amount: int) -> int:
    """The id of the append."""
    (effect,) = step(partition, Add(token, "n", amount))
    assert isinstance(effect, Append)
    return effect.append_id


def shown(partition: CoordinatorPartition[Counters]) -> Any:
    (effect,) = step(partition, Show(99, "n"))
    assert isinstance(effect, Reply)
    return effect.result


def test_the_next_step_sees_what_is_appended_and_not_committed() -> None:
    partition = loaded(("n", 1))
    first, second = add(partition, 1, 1), add(partition, 2, 1)
    assert (partition.shard.values.latest("n"), shown(partition)) == (3, 1)
    assert step(partition, AppendCompleted(first, 1)) == [Reply(1, 2)]
    assert shown(partition) == 2
    assert step(partition, AppendCompleted(second, 2)) == [Reply(2, 3)]
    assert (shown(partition), partition.shard.owners) == (3, ["n", "n"])


def test_lists_are_of_committed_values_and_decisions_of_latest() -> None:
    partition = loaded(("n", 1), ("o", 2))
    (removal,) = step(partition, Add(1, "n", -1))
    step(partition, Add(2, "p", 3))
    assert step(partition, ShowAll(3)) == [Reply(3, {"n": 1, "o": 2})]
    assert step(partition, Count(4)) == [Reply(4, {"o": 2, "p": 3})]
    assert isinstance(removal, Append)
    step(partition, AppendCompleted(removal.append_id, 2))
    assert step(partition, ShowAll(5)) == [Reply(5, {"o": 2})]


def test_a_failed_append_is_undone() -> None:
    partition = loaded(("n", 1))
    append_id = add(partition, 1, 5)
    assert step(partition, AppendFailed(append_id, ErrorCode.KAFKA_STORAGE_ERROR)) == [
        Reply(1, ErrorCode.KAFKA_STORAGE_ERROR)
    ]
    assert partition.shard.values.latest("n") == 1


def test_an_append_in_doubt_stays_and_may_be_committed() -> None:
    partition = loaded(("n", 1))
    append_id = add(partition, 1, 5)
    assert step(partition, AppendFailed(append_id, ErrorCode.REQUEST_TIMED_OUT)) == [
        Reply(1, ErrorCode.REQUEST_TIMED_OUT)
    ]
    assert (partition.shard.values.latest("n"), shown(partition)) == (6, 1)
    assert step(partition, AppendCompleted(append_id, 1)) == []
    assert shown(partition) == 6


def test_unloading_answers_what_waits_and_forgets_the_state() -> None:
    partition = loaded(("n", 1))
    add(partition, 1, 5)
    assert Reply(1, ErrorCode.NOT_COORDINATOR) in partition.unload(0, 0)
    assert partition.shard.values.latest("n") is None
    assert step(partition, Add(2, "n", 1)) == [Reply(2, ErrorCode.NOT_COORDINATOR)]


@pytest.mark.parametrize(
    ("name", "error"), [("n", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ("", ErrorCode.INVALID_REQUEST)]
)
def test_a_request_while_loading_is_refused(name: str, error: ErrorCode) -> None:
    assert step(CoordinatorPartition(Counters()), Show(1, name)) == [Reply(1, error)]


def test_events_reach_the_shard_once_the_log_is_loaded() -> None:
    assert step(CoordinatorPartition(Counters()), TimerFired("tick")) == []
    assert step(loaded(), TimerFired("tick")) == [SetTimer("tick", 10)]


def test_a_load_that_failed_leaves_nothing() -> None:
    partition = CoordinatorPartition(Counters())
    partition.replay(b"n", b"1", 0)
    partition.fail_loading()
    assert partition.phase is Phase.FAILED
    assert partition.shard.values.latest("n") is None
