"""What a coordinator has to find in its log after a restart: what was committed, and what was in flight (I-17)."""

from types import SimpleNamespace

import pytest

from ottla.coordinator.durable_state import DurableState
from ottla.coordinator.records import CommittedOffset, build_offset_commit_key, build_offset_commit_value
from ottla.protocol.records.record import Record, build_batch
from tests.simulation.replay import LoadCheck, live_states

KEY = build_offset_commit_key("g", "t", 0)


class CommitsLog:
    """Offsets that the group has committed, each in a batch of its own."""

    log_start_offset = 0
    flushed_offset = sync_required_offset = 0

    def __init__(self, *offsets):
        self.values = [build_offset_commit_value(CommittedOffset(offset, -1, "", 1_000)) for offset in offsets]

    @property
    def log_end_offset(self):
        return len(self.values)

    def read(self, offset, *_, **__):
        record = Record(timestamp=1_000, key=KEY, value=self.values[offset])
        return SimpleNamespace(records=build_batch([record], base_offset=offset), end_offset=offset + 1)


def broker_with(log, *, high_watermark, loaded, loaded_offset=0):
    """Its coordinator knows the first records of the log, as many as `loaded` says, and found those before
    `loaded_offset` when it began."""
    durable = DurableState()
    for offset, value in enumerate(log.values[:loaded]):
        durable.replay(KEY, value, offset, None)
    coordinator = SimpleNamespace(shard=SimpleNamespace(durable=durable), rest=())
    hosted = SimpleNamespace(index=0, is_loading=False, coordinator=coordinator, _queue=(), loaded_offset=loaded_offset)
    partition = SimpleNamespace(log=log, high_watermark=high_watermark)
    replicas = SimpleNamespace(partition=lambda topic, index: partition)
    groups = SimpleNamespace(topic=SimpleNamespace(_partitions={0: hosted}))
    return SimpleNamespace(parts=SimpleNamespace(groups=groups), groups=groups, replicas=replicas)


@pytest.fixture
def before():
    """One commit is stored, another is in flight."""
    return live_states(broker_with(CommitsLog(5, 6), high_watermark=1, loaded=1))


@pytest.mark.parametrize("survived", [CommitsLog(5), CommitsLog(5, 6)], ids=["lost", "kept"])
def test_append_in_flight_may_survive_or_be_lost(before, survived):
    end_offset = survived.log_end_offset
    after = broker_with(survived, high_watermark=end_offset, loaded=end_offset)
    assert LoadCheck(before).look(after) == []


def test_append_that_waits_for_the_disk_is_in_flight():
    log = CommitsLog(5, 6)
    log.flushed_offset, log.sync_required_offset = 1, 2
    (before,) = live_states(broker_with(log, high_watermark=2, loaded=1)).values()
    assert before.stored_offset == 1


@pytest.mark.parametrize(("high_watermark", "count"), [(1, 0), (2, 1)])
def test_what_is_loaded_promises_nothing_before_it_is_committed(high_watermark, count):
    broker = broker_with(CommitsLog(5, 6), high_watermark=high_watermark, loaded=2, loaded_offset=2)
    assert len(live_states(broker)) == count


@pytest.mark.parametrize("survived", [CommitsLog(), CommitsLog(4, 6)], ids=["none", "another"])
def test_committed_record_must_survive_a_restart(before, survived):
    end_offset = survived.log_end_offset
    after = broker_with(survived, high_watermark=end_offset, loaded=end_offset)
    (difference,) = LoadCheck(before).look(after)
    assert "offset of g for ('t', 0)" in difference


@pytest.mark.parametrize("loaded", [0, 1])
def test_record_that_survived_must_be_loaded(before, loaded):
    after = broker_with(CommitsLog(5, 6), high_watermark=2, loaded=loaded)
    (difference,) = LoadCheck(before).look(after)
    assert "offset of g for ('t', 0)" in difference
