"""What a follower does to its log, and how the replication room learns of it.

`ReplicaFollower` decides and touches no file: it returns effects. Here they are performed, in their order and in the
step of the event loop in which they were decided, so that no request can come between. Each is reported back, with the
error if the log refused: then the log is what it was before, or has lost only part of what a truncation should drop.
No error ends the fetcher: the follower of that partition fails, the others go on.

Also here: what a replica that has lost a damaged segment does to its log before it becomes a follower again.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ottla.protocol.records.batch import iterate_batches
from ottla.replication.follower_effects import AppendRecords, Effect, Fact, LogEffect, RestartLog, Truncate
from ottla.replication.partition import Partition
from ottla.storage.validation import validate_replicated

Report: TypeAlias = Callable[[LogEffect, Exception | None, int], list[Effect]]
"""`FetcherManager.performed`, or that of the fetcher: effect, error, now in milliseconds."""


def perform(effects: Iterable[Effect], report: Report, *, now_ms: int, wall_ms: int) -> list[Fact]:
    """Performs what is to be done to logs; returns what has happened, for those that it concerns."""
    facts: list[Fact] = []
    pending = list(effects)
    for effect in pending:
        if not isinstance(effect, AppendRecords | Truncate | RestartLog):
            facts.append(effect)
            continue
        # What follows from it comes behind it.
        try:
            match effect:
                case AppendRecords():
                    append(effect.partition, effect.records, effect.log_start_offset, wall_ms=wall_ms)
                case Truncate():
                    truncate(effect.partition, effect.offset)
                case RestartLog():
                    restart(effect.partition, effect.offset)
            pending += report(effect, None, now_ms)
        except Exception as error:
            # Also one that only a bug can cause: what the others are to do is in the same response.
            pending += report(effect, error, now_ms)
    return facts


def append(partition: Partition, records: memoryview, leader_start_offset: int, *, wall_ms: int) -> None:
    """Appends what the leader sent, whose log begins at `leader_start_offset`. Raises CorruptMessage, the log being
    unchanged, or KafkaStorageError."""
    log, end = partition.log, partition.log.log_end_offset
    is_cut_within = max(log.log_start_offset, leader_start_offset) >= end and _start_within_batch(partition, records)
    log.append_as_follower(records, now_wall_ms=wall_ms)
    log.write_pending(now_wall_ms=wall_ms)
    if is_cut_within:
        log.delete_records_before(end)
        partition.high_watermark = end


def _start_within_batch(partition: Partition, records: memoryview) -> bool:
    """DeleteRecords may leave a log start within a batch. A log that is empty, or of which the leader has deleted all,
    takes the whole of that batch and begins with it. Such records need not be the leader's: it has no epoch left that
    could say so, and answers that they end where its own log begins (KIP-101)."""
    for _, header in iterate_batches(records):
        if not header.base_offset < partition.log.log_end_offset < header.next_offset:
            break
        # All are checked before the log is changed.
        for _ in validate_replicated(records, header.base_offset):
            pass
        restart(partition, header.base_offset)
        return True
    return False


def truncate(partition: Partition, offset: int) -> None:
    """Drops all batches that end after `offset`. Raises KafkaStorageError."""
    try:
        partition.log.truncate_to(offset)
    finally:
        # The disk may have refused after some segments were dropped.
        partition.log_truncated()


def restart(partition: Partition, offset: int) -> None:
    """Drops all records; the log goes on at `offset`. Raises KafkaStorageError."""
    log = partition.log
    try:
        log.truncate_fully_and_start_at(offset)
        # Epochs of the records that went would be taken for knowledge about the leader's.
        log.epochs.clear()
    finally:
        partition.log_truncated()
