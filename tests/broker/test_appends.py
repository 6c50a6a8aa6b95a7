"""The broker's own appends: in which order their outcomes come."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.replicas.appends import Appends
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log import AppendInfo
from ottla.timer.wheel import TimingWheel
from tests.cluster.stores import Clock


class WrittenLog:
    """All that is appended is written at once, and no sync is asked for."""

    waits_for_sync, failure = False, None
    flushed_offset = sync_required_offset = 0

    def write_pending(self, now_wall_ms: int) -> None:
        pass


class Replica:
    """A partition whose high watermark is what the test says, from the next write on."""

    def __init__(self) -> None:
        self.sessions = SimpleNamespace(targets={})
        self.traffic = SimpleNamespace(records_in=0, bytes_in=0)
        self.log = WrittenLog()
        self.topic, self.index, self.leader_epoch = "__consumer_offsets", 0, 0
        self.end_offset = self.high_watermark = self.next_high_watermark = 0
        self.has_too_few_in_sync = False

    def append(self, records: memoryview, *_: Any) -> AppendInfo:
        offset, self.end_offset = self.end_offset, self.end_offset + 1
        return AppendInfo(offset, offset, -1, -1, 0, duplicate=False)

    def written(self, now_ms: int) -> bool:
        rose = self.next_high_watermark > self.high_watermark
        self.high_watermark = self.next_high_watermark
        return rose

    def acknowledgement(self, offset: int, leader_epoch: int) -> ErrorCode | None:
        if offset >= self.high_watermark:
            return None
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.has_too_few_in_sync else ErrorCode.NONE


def new_appends() -> Appends:
    clock = Clock()
    runtime: Any = SimpleNamespace(
        clock=clock,
        broker_clock=clock,
        lag_clock=clock,
        wheel=TimingWheel(),
        guard=lambda action, *some: action(*some),
    )
    return Appends(runtime, SimpleNamespace(), lambda partition: None)  # type: ignore[arg-type]


def test_outcomes_of_own_appends_come_in_the_order_of_the_log() -> None:
    """One that waited, and one that the high watermark passes as soon as it is written."""
    appends = new_appends()
    replica: Any = Replica()
    outcomes: list[int] = []

    def append() -> None:
        appends.append_own(replica, memoryview(b""), lambda info, error: outcomes.append(info.base_offset))
        appends.flush_and_notify()

    append()
    assert outcomes == []
    replica.next_high_watermark = 2
    append()

    assert outcomes == [0, 1]


def test_a_committed_record_is_not_in_doubt() -> None:
    """Replicas that have left the ISR since then do not matter: no later event would end the doubt of a coordinator."""
    appends = new_appends()
    replica: Any = Replica()
    outcomes: list[tuple[AppendInfo | None, KafkaError | None]] = []

    appends.append_own(replica, memoryview(b""), lambda *outcome: outcomes.append(outcome))
    replica.next_high_watermark = 1
    replica.has_too_few_in_sync = True
    appends.flush_and_notify()

    ((info, error),) = outcomes
    assert error is None
    assert info is not None
    assert info.base_offset == 0
