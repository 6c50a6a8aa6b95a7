"""What a coordinator holds, and what its log says it should hold (I-17)."""

from typing import Any, NamedTuple

from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.coordinator.durable_state import DurableState
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.control import marker_of
from ottla.protocol.records.record import iterate_records
from tests.simulation.invariants import hosted_partitions, is_within_step

Snapshot = dict[str, Any]
"""Durable facts of one partition of `__consumer_offsets`, by a name that says which."""


class Live(NamedTuple):
    """What a coordinator held at a moment, and where the appends begin in its log that were in flight then."""

    state: Snapshot
    stored_offset: int


def live_states(broker: Any) -> dict[int, Live]:
    """The committed state of all groups of a live broker, by partition. What a coordinator has loaded may be beyond
    that for a while, and promises nothing yet."""
    states: dict[int, Live] = {}
    for hosted in hosted_partitions(broker):
        stored_offset = _stored_offset(broker.replicas.partition(CONSUMER_OFFSETS, hosted.index))
        if not is_within_step(hosted) and stored_offset >= hosted.loaded_offset:
            states[hosted.index] = Live(live_state(hosted), stored_offset)
    return states


def _stored_offset(partition: Any) -> int:
    """Appends before it have their outcomes: replicas have them, and so has the disk where they wait for it."""
    log = partition.log
    waits_for_disk = log.flushed_offset < log.sync_required_offset
    return min(partition.high_watermark, log.flushed_offset) if waits_for_disk else partition.high_watermark


def live_state(hosted: Any) -> Snapshot:
    return _facts(hosted.coordinator.shard.durable)


def replayed(broker: Any, index: int, upper_bound: int | None = None) -> Snapshot:
    """The same for one partition, from nothing but the records that stand in its log, or in the log up to an offset."""
    log = broker.replicas.partition(CONSUMER_OFFSETS, index).log
    end_offset = log.log_end_offset if upper_bound is None else min(upper_bound, log.log_end_offset)
    durable = DurableState()
    offset = log.log_start_offset
    while offset < end_offset:
        chunk = log.read(offset, 1 << 20, upper_bound=end_offset, min_one_batch=True, wait=True)
        _replay_chunk(durable, memoryview(chunk.records))
        offset = chunk.end_offset
    return _facts(durable)


def _replay_chunk(durable: DurableState, records: memoryview) -> None:
    for position, header in iterate_batches(records):
        batch = records[position : position + header.size_bytes]
        marker = marker_of(batch) if header.is_control else None
        if marker is not None:
            for _ in durable.replay_marker(header.producer_id, commit=marker.is_commit):
                pass
        producer_id = header.producer_id if header.is_transactional else None
        for record in () if header.is_control else iterate_records(batch):
            durable.replay(record.key or b"", record.value, record.offset, producer_id)


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    return [
        f"{name}: {before.get(name)} became {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


class LoadCheck:
    """Looks at each partition in the step in which it is loaded, before any client can change it.

    What was committed is in the log, and what is in the log is loaded: also what was in flight when the coordinator
    ended, of which no client knows that it is stored.
    """

    def __init__(self, expected: dict[int, Live]) -> None:
        self._all = expected
        self._left = dict(expected)

    def look(self, broker: Any) -> list[str]:
        if not self._left or not hasattr(broker, "groups"):
            return []
        found: list[str] = []
        for hosted in hosted_partitions(broker):
            if not hosted.is_loading and hosted.index in self._left:
                before = self._left.pop(hosted.index)
                found += differences(before.state, replayed(broker, hosted.index, before.stored_offset))
                found += differences(replayed(broker, hosted.index), live_state(hosted))
        return found

    def once_more(self) -> "LoadCheck | None":
        """For the next start, if the broker has died before it could serve anything."""
        return self if len(self._left) == len(self._all) else None


def _facts(durable: DurableState) -> Snapshot:
    facts: Snapshot = {f"group {group_id}": metadata for group_id, metadata in durable.metadata.items()}
    for group_id, offsets in durable.offsets.items():
        for partition, logged in offsets.items():
            facts[f"offset of {group_id} for {partition}"] = logged
    for producer_id, pending in durable.pending._by_producer.items():
        facts |= {f"offset of {key} in a transaction of {producer_id}": logged for key, logged in pending.items()}
    return facts
