"""What a coordinator holds, and what its log says it should hold (I-17)."""

from typing import Any

from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.coordinator.durable import DurableState
from tests.simulation.invariants import hosted_partitions
from tests.simulation.traffic import records_of

Snapshot = dict[str, Any]
"""Durable facts by a name that says which."""


def snapshot(broker: Any) -> Snapshot:
    """The committed state of all groups of a live broker."""
    facts: Snapshot = {}
    for hosted in hosted_partitions(broker):
        _add(facts, hosted.coordinator.durable)
    return facts


def replayed(broker: Any) -> Snapshot:
    """The same, from nothing but the records that stand in the log."""
    facts: Snapshot = {}
    for hosted in hosted_partitions(broker):
        log = broker.replicas.partition(CONSUMER_OFFSETS, hosted.index).log
        durable = DurableState()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            chunk = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True)
            for record in records_of(chunk.records):
                durable.replay(record.key, record.value, record.offset)
            offset = chunk.end_offset
        _add(facts, durable)
    return facts


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    return [
        f"{name}: {before.get(name)} became {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _add(facts: Snapshot, durable: DurableState) -> None:
    for group_id, metadata in durable.metadata.items():
        facts[f"group {group_id}"] = metadata
    for group_id, offsets in durable.offsets.items():
        for partition, logged in offsets.items():
            facts[f"offset of {group_id} for {partition}"] = logged
