"""Histories in few words: what one partition, `t-0`, has lived through."""

from collections.abc import Sequence
from typing import Any

from ottla.testing.audit.findings import FindingKind
from ottla.testing.audit.history import (
    AuditedPartition,
    AuditHistory,
    Commit,
    Delivered,
    FinalLog,
    SeenConnection,
    SentBatch,
    StoredBatch,
)
from ottla.testing.audit.judge import judge

ADDRESS = "127.0.0.1"
A, B = 0, 1
"""Connections of two clients, `a` and `b`."""


def sent(offset: int, **fields: Any) -> SentBatch:
    """One record without a producer id, acknowledged at an offset; its CRC is what it is known by."""
    given = {
        "crc": 100 + offset,
        "last_offset_delta": 0,
        "max_timestamp": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "partition": 0,
        "connection": A,
        "acks": -1,
        "at_ns": 0,
        "answered": 1,
        "offset": offset,
        "error": 0,
    }
    return SentBatch(**(given | fields))


def in_doubt(offset: int, **fields: Any) -> SentBatch:
    return sent(offset, **fields)._replace(answered=0, offset=-1, error=-2)


def idempotent(offset: int, sequence: int, epoch: int = 0, **fields: Any) -> SentBatch:
    return sent(offset, producer_id=7, producer_epoch=epoch, base_sequence=sequence, **fields)


def stored(offset: int, **fields: Any) -> StoredBatch:
    """Where `sent` has it."""
    given = {
        "base_offset": offset,
        "last_offset": offset,
        "crc": 100 + offset,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "is_control": False,
        "is_transactional": False,
        "leader_epoch": 0,
    }
    return StoredBatch(**(given | fields))


def of_producer(offset: int, sequence: int, epoch: int = 0, **fields: Any) -> StoredBatch:
    return stored(offset, producer_id=7, producer_epoch=epoch, base_sequence=sequence, **fields)


def log(*batches: StoredBatch, **fields: Any) -> FinalLog:
    end = batches[-1].last_offset + 1 if batches else 0
    given = {"log_start_offset": 0, "high_watermark": end, "last_stable_offset": end, "log_end_offset": end}
    return FinalLog(**(given | {"batches": batches} | fields))


def delivered(start: int, end: int, **fields: Any) -> Delivered:
    given = {"partition": 0, "connection": A, "number": 1, "at_ns": 0, "isolation": 0, "limit": end}
    return Delivered(**(given | {"start": start, "end": end} | fields))


def committed(offset: int, number: int = 2, **fields: Any) -> Commit:
    given = {
        "number": number,
        "at_ns": 0,
        "connection": A,
        "group": "g",
        "member_id": "m",
        "partition": 0,
        "offset": offset,
        "generation": 1,
        "generation_then": 1,
    }
    return Commit(**(given | fields))


def history(batches: Sequence[SentBatch] = (), final: FinalLog | None = None, **fields: Any) -> AuditHistory:
    """All answers to numbers up to 10 have left."""
    partition = AuditedPartition("t", 0, log=final)
    connections = [SeenConnection(name, (name, ADDRESS), 10) for name in ("a", "b")]
    is_final = (18).__eq__
    return AuditHistory(partitions=[partition], connections=connections, batches=batches, is_final=is_final, **fields)


def kinds(*given: Any, **fields: Any) -> list[FindingKind]:
    """Of what is found in such a history."""
    return [finding.kind for finding in judge(history(*given, **fields))]
