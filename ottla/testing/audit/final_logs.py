"""Logs as they are in the end, read where they lie: the headers of their batches, no records."""

from collections.abc import Collection, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import CONTROL_BIT, LENGTH_OVERHEAD, TRANSACTIONAL_BIT
from ottla.replication.partition import Partition
from ottla.storage.log_config import LogConfig
from ottla.testing.audit.history import Aborted, FinalLog, StoredBatch

if TYPE_CHECKING:
    from ottla.broker.assembly import Parts

EVER_MS: Final = 1 << 62
READ_BYTES: Final = 1 << 20
BATCHES_MAX: Final = 1_000_000
"""Of one log: more are not looked at, and nothing is said of the log then."""
AS_PRODUCED: Final = "producer"
CREATE_TIME: Final = "CreateTime"
# Base offset, length, leader epoch, CRC, attributes, last offset delta, producer id, epoch, sequence.
_HEADER = Struct(">qiixIhi16xqhi4x")


def final_log(
    leader: Partition,
    parts: "Iterable[Parts]",
    begin_offset: int,
    *,
    configs: Collection[LogConfig],
    deleted_before: int,
    now_wall_ms: int,
    has_expired: bool,
) -> FinalLog | None:
    """What there is from `begin_offset` on; None: too much of it. `configs`: all that were in force since its first
    request. `has_expired`: retention has deleted something of some log, whatever the time is now."""
    log = leader.log
    start = max(log.log_start_offset, begin_offset)
    batches = batches_of(leader, start, log.log_end_offset)
    if batches is None:
        return None
    end = leader.high_watermark
    aborted = [
        Aborted(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted_transactions(start, end)
    ]
    return FinalLog(
        log_start_offset=log.log_start_offset,
        high_watermark=end,
        last_stable_offset=leader.last_stable_offset,
        log_end_offset=log.log_end_offset,
        batches=batches,
        replicas=_replicas(leader, parts, start, end),
        aborted=aborted,
        is_compacted=any(config.is_compacted for config in configs),
        keeps_crcs=all(map(_keeps_crcs, configs)),
        has_followers=leader.has_followers,
        may_lose=any(config.unclean_leader_election_enable for config in configs),
        deleted_before=deleted_before,
        expires_before_ms=EVER_MS if has_expired else max(_expires_before_ms(each, now_wall_ms) for each in configs),
    )


def _keeps_crcs(config: LogConfig) -> bool:
    return config.compression_type == AS_PRODUCED and config.message_timestamp_type == CREATE_TIME


def _replicas(leader: Partition, parts: "Iterable[Parts]", start: int, end: int) -> dict[int, list[StoredBatch]]:
    """Of followers that run, by node."""
    replicas: dict[int, list[StoredBatch]] = {}
    for each in parts:
        follower = each.replicas.find(leader.topic, leader.index)
        if follower is None or follower is leader or follower.is_leader:
            continue
        copied = batches_of(follower, max(follower.log.log_start_offset, start), min(end, follower.log.log_end_offset))
        if copied is not None:
            replicas[each.runtime.node_id] = copied
    return replicas


def _expires_before_ms(config: LogConfig, now_wall_ms: int) -> int:
    if config.retention_bytes >= 0:
        return EVER_MS
    return 0 if config.retention_ms < 0 else now_wall_ms - config.retention_ms


def batches_of(replica: Partition, start: int, end: int) -> list[StoredBatch] | None:
    """Up to the first that cannot be read; None where there are more than BATCHES_MAX."""
    batches: list[StoredBatch] = []
    offset, unpack, header_bytes = start, _HEADER.unpack_from, _HEADER.size
    # As its constructor, without a call of Python code for each of very many.
    a_tuple: Any = tuple
    append, new = batches.append, a_tuple.__new__
    while offset < end:
        try:
            read = replica.log.read(offset, READ_BYTES, end, wait=True)
        except KafkaError:
            # What is behind it cannot be read by consumers either.
            break
        records = read.records
        position, size = 0, len(records)
        if not size:
            break
        while position + header_bytes <= size:
            base, length, leader_epoch, crc, attributes, delta, producer_id, epoch, sequence = unpack(records, position)
            is_control, is_transactional = attributes & CONTROL_BIT != 0, attributes & TRANSACTIONAL_BIT != 0
            last_offset = base + delta
            append(
                new(
                    StoredBatch,
                    (
                        base,
                        last_offset,
                        crc,
                        producer_id,
                        epoch,
                        sequence,
                        is_control,
                        is_transactional,
                        leader_epoch,
                    ),
                )
            )
            position += LENGTH_OVERHEAD + length
        if len(batches) > BATCHES_MAX:
            return None
        offset = read.end_offset
    return batches
