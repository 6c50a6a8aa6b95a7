"""What coordinators know of transactional ids, against their logs (I-17).

Looked at when a partition of `__transaction_state` has been loaded, and then whenever something more of it is
committed and nothing is under way.
"""

from typing import Any

from ottla.cluster.image import TRANSACTION_STATE
from ottla.coordinator.runtime.partition import Phase
from ottla.coordinator.transactions.entry import TransactionMetadata
from ottla.coordinator.transactions.records import parse_transaction_key, parse_transaction_value
from ottla.protocol.errors import CorruptMessage
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import iterate_records
from tests.simulation.cluster.decisions import Decisions
from tests.simulation.invariants import is_within_step
from tests.simulation.judge import Judge

States = dict[str, TransactionMetadata]


class KnownIds:
    """Of one life of a broker."""

    def __init__(self, judge: Judge, decisions: Decisions, broker: Any, where: str) -> None:
        self._judge, self._decisions, self._broker, self._where = judge, decisions, broker, where
        # Partitions in their term.
        self._loaded: set[Any] = set()
        self._changed: set[int] = set()

    def committed(self, index: int) -> None:
        """More of a partition that the broker leads."""
        self._changed.add(index)

    def note_deleted(self) -> None:
        """Partitions to which this broker's coordinators need not write markers."""
        coordinator, image = self._broker.parts.transaction_loader.if_made, self._broker.metadata.image
        for hosted in () if coordinator is None else coordinator.topic:
            if hosted.coordinator.phase is Phase.ACTIVE:
                self._decisions.note_deleted(hosted.index, hosted.coordinator.shard.entries, image.partition)

    def look(self) -> None:
        coordinator = self._broker.parts.transaction_loader.if_made
        for hosted in () if coordinator is None else coordinator.topic:
            if hosted.coordinator.phase is not Phase.ACTIVE:
                continue
            is_new = hosted not in self._loaded
            self._loaded.add(hosted)
            replica = self._broker.replicas.find(TRANSACTION_STATE, hosted.index)
            if replica is None or (replica.is_leader, replica.leader_epoch) != (True, hosted.leader_epoch):
                # It has been replaced, and does not know it yet.
                continue
            if is_new:
                self._look_at_loaded(hosted, replica.log)
            if replica.log.failure is not None:
                # In the next step it loads what the log has (`TransactionCoordinatorLoader.log_failed`).
                continue
            all_is_committed = replica.high_watermark == replica.log.log_end_offset
            if hosted.index in self._changed and all_is_committed and _is_quiet(hosted):
                self._changed.remove(hosted.index)
                self._decisions.check_coordinator(hosted.index, replica.high_watermark, known(hosted))

    def _look_at_loaded(self, hosted: Any, log: Any) -> None:
        try:
            with log.files.nothing_fails():
                logged = states_in(log, hosted.loaded_offset)
        except CorruptMessage:
            # Who reads records that a disk has damaged is judged elsewhere.
            return
        self._judge.counts["transactional ids loaded"] += len(logged)
        if known(hosted) != logged:
            what = f"{self._where} has loaded {hosted.index}: {known(hosted)}, its log says {logged}"
            self._judge.violated("I-17", what)


def known(hosted: Any) -> States:
    """Without ids whose first record is on its way."""
    entries = hosted.coordinator.shard.entries
    return {name: entry.metadata for name, entry in entries.items() if entry.exists_in_log}


def _is_quiet(hosted: Any) -> bool:
    """No record of it is on its way: markers may be."""
    pending = [entry.pending for entry in hosted.coordinator.shard.entries.values() if entry.pending is not None]
    return not is_within_step(hosted) and not any(each.target is None or each.value is not None for each in pending)


def states_in(log: Any, end_offset: int) -> States:
    """By nothing but the records of a log."""
    states: States = {}
    offset = log.log_start_offset
    while offset < end_offset:
        chunk = log.read(offset, 1 << 20, upper_bound=end_offset, min_one_batch=True, wait=True)
        for position, header in iterate_batches(chunk.records):
            for record in iterate_records(chunk.records[position : position + header.size_bytes]):
                transactional_id = parse_transaction_key(bytes(record.key or b""))
                if transactional_id is not None and record.value is None:
                    states.pop(transactional_id, None)
                elif transactional_id is not None:
                    states[transactional_id] = parse_transaction_value(bytes(record.value or b""))
        offset = chunk.end_offset if chunk.records else end_offset
    return states
