"""For each topic config a proof that a running broker obeys a change of it, at once."""

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.compression import Codec
from tests.broker.dynamic_configs import CHECK_MS, COMPACTED, FILE_REMOVAL_MS, HOUR_MS, SEGMENT, STATIC, Proof, Stage
from tests.storage.support import keys_and_values


async def cleanup_policy(stage: Stage) -> None:
    await stage.start()
    assert await stage.append("x", key=None) is ErrorCode.NONE
    await stage.alter("compact")
    assert await stage.append("x", key=None) is ErrorCode.INVALID_RECORD


async def compression_type(stage: Stage) -> None:
    await stage.start()
    await stage.append("x")
    await stage.alter("gzip")
    await stage.append("x")
    assert stage.codecs() == [Codec.NONE, Codec.GZIP]


def proof_of_level(codec: str, lowest: int, highest: int) -> Proof:
    """The same records take less room at a higher level."""

    async def proof(stage: Stage) -> None:
        await stage.start(compression_type=codec)
        text = " ".join(f"{n * n % 9973}" for n in range(4000))
        await stage.alter(lowest)
        await stage.append(text)
        await stage.alter(highest)
        await stage.append(text)
        large, small = stage.batch_sizes()
        assert small < large

    return proof


async def delete_retention_ms(stage: Stage) -> None:
    """The first pass over the mark of a deleted key says how long it stays (KIP-534); the default is a day."""
    await stage.start(**COMPACTED, min_cleanable_dirty_ratio="0")
    await delete_key(stage, "early")
    await stage.alter(0)
    await delete_key(stage, "late")
    keys = [key for _, key, _ in keys_and_values(stage.log)]
    assert b"early" in keys
    assert b"late" not in keys


async def delete_key(stage: Stage, key: str) -> None:
    """And let the cleaner pass over it twice."""
    assert await stage.append(None, key=key) is ErrorCode.NONE
    for _ in range(2):
        await stage.append_segments(2)
        await stage.sleep(3 * CHECK_MS)


async def file_delete_delay_ms(stage: Stage) -> None:
    await stage.start(**SEGMENT, retention_ms="1000")
    await stage.alter(0)
    await stage.append_segments(3, age_ms=HOUR_MS)
    await stage.sleep(2 * CHECK_MS + FILE_REMOVAL_MS)
    names = [path for path in stage.node.disk.list_directory(stage.log.directory) if path.endswith(".deleted")]
    assert stage.log.log_start_offset > 0
    assert names == []


async def flush_messages(stage: Stage) -> None:
    await stage.start()
    await stage.append("x")
    await stage.sleep(CHECK_MS)
    assert stage.log.flushed_offset == 0
    await stage.alter(1)
    assert stage.log.flushed_offset == 1, "what is written already"
    await stage.append("x")
    await stage.sleep(1)
    assert stage.log.flushed_offset == 2


async def flush_ms(stage: Stage) -> None:
    await stage.start()
    await stage.alter(HOUR_MS)
    await stage.append("x")
    await stage.sleep(CHECK_MS)
    assert stage.log.flushed_offset == 0
    await stage.alter(CHECK_MS)
    await stage.sleep(2 * CHECK_MS)
    assert stage.log.flushed_offset == 1


async def index_interval_bytes(stage: Stage) -> None:
    await stage.start()
    await stage.append_segments(2)
    before = len(stage.log.segments.active.offset_index)
    await stage.alter(0)
    await stage.append_segments(2)
    assert len(stage.log.segments.active.offset_index) == before + 2


async def max_compaction_lag_ms(stage: Stage) -> None:
    await stage.start(**COMPACTED, min_cleanable_dirty_ratio="1")
    await dirty_by_half(stage)
    await stage.alter(1)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() < 4


async def max_message_bytes(stage: Stage) -> None:
    await stage.start()
    assert await stage.append("x" * 500) is ErrorCode.NONE
    await stage.alter(100)
    assert await stage.append("x" * 500) is ErrorCode.MESSAGE_TOO_LARGE


async def timestamp_after_max_ms(stage: Stage) -> None:
    await stage.start()
    assert await stage.append("x", age_ms=-10_000) is ErrorCode.NONE
    await stage.alter(5_000)
    assert await stage.append("x", age_ms=-10_000) is ErrorCode.INVALID_TIMESTAMP


async def timestamp_before_max_ms(stage: Stage) -> None:
    await stage.start()
    assert await stage.append("x", age_ms=10_000) is ErrorCode.NONE
    await stage.alter(5_000)
    assert await stage.append("x", age_ms=10_000) is ErrorCode.INVALID_TIMESTAMP


async def timestamp_type(stage: Stage) -> None:
    await stage.start()
    await stage.alter("LogAppendTime")
    await stage.append("x", age_ms=10_000)
    records = stage.log.read(0, 1 << 20, upper_bound=1, wait=True).records
    ((_, header),) = iterate_batches(memoryview(bytes(records)))
    assert header.timestamp_type == 1


async def min_cleanable_dirty_ratio(stage: Stage) -> None:
    await stage.start(**COMPACTED)
    await stage.alter(1)
    await dirty_by_half(stage)
    await stage.alter(0)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() < 4


async def dirty_by_half(stage: Stage) -> None:
    """Some was compacted; what came since is left alone."""
    await stage.append_segments(3)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() == 2
    await stage.append_segments(2)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() == 4


async def min_compaction_lag_ms(stage: Stage) -> None:
    await stage.start(**COMPACTED, min_cleanable_dirty_ratio="0")
    await stage.alter(HOUR_MS)
    await stage.append_segments(4)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() == 4
    await stage.alter(0)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() < 4


async def min_insync_replicas(stage: Stage) -> None:
    """The high watermark rises again, and the ELR is emptied, without waiting for a look at all partitions."""
    await stage.start_two_brokers()
    leader = stage.node
    stage.cluster.kill(next(node for node in stage.nodes if node is not leader))
    await stage.cluster.until(lambda: len(leader.partition("t", 0).isr) == 1)
    assert await stage.append("x") is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.partition("t", 0).elr
    stage.nodes = [leader]
    await stage.alter(1)
    assert leader.partition("t", 0).elr == ()
    assert await stage.append("x") is ErrorCode.NONE
    assert leader.broker.replicas.partition("t", 0).high_watermark == 1


async def unclean_leader_election_enable(stage: Stage) -> None:
    await stage.start_two_brokers()
    first = stage.node
    other = next(node for node in stage.nodes if node is not first)
    stage.cluster.kill(other)
    await stage.cluster.until(lambda: len(first.partition("t", 0).isr) == 1)
    stage.cluster.kill(first)
    static = {name.replace(".", "_"): value for name, value in STATIC.items()}
    again = stage.cluster.boot(other.node_id, other.disk, boot="another", host=f"{other.host}-2", **static)
    stage.nodes = [again]
    await again.started
    await stage.cluster.until(lambda: again.broker.image.active_brokers == {again.node_id})
    await stage.sleep(1_000)
    assert again.partition("t", 0).leader == -1
    await stage.alter("true", again)
    assert again.partition("t", 0).leader == again.node_id


async def preallocate(stage: Stage) -> None:
    """Nothing but false is accepted."""
    await stage.start()
    await stage.alter("false")
    with pytest.raises(KafkaError):
        await stage.alter("true")


async def retention_bytes(stage: Stage) -> None:
    await stage.start(**SEGMENT)
    await stage.append_segments(3)
    await stage.sleep(2 * CHECK_MS)
    assert stage.log.log_start_offset == 0
    await stage.alter(1)
    await stage.sleep(2 * CHECK_MS)
    assert stage.log.log_start_offset > 0


async def retention_ms(stage: Stage) -> None:
    await stage.start(**SEGMENT)
    await stage.append_segments(3, age_ms=HOUR_MS)
    await stage.sleep(2 * CHECK_MS)
    assert stage.log.log_start_offset == 0
    await stage.alter(1000)
    await stage.sleep(2 * CHECK_MS)
    assert stage.log.log_start_offset > 0


async def segment_bytes(stage: Stage) -> None:
    await stage.start()
    await stage.append_segments(2)
    assert len(stage.log.segments) == 1
    await stage.alter(1000)
    await stage.append("x")
    assert len(stage.log.segments) == 2


async def segment_index_bytes(stage: Stage) -> None:
    await stage.start(index_interval_bytes="0")
    await stage.append_segments(4)
    assert len(stage.log.segments) == 1
    await stage.alter(24)
    await stage.append("x")
    assert len(stage.log.segments) == 2


async def segment_jitter_ms(stage: Stage) -> None:
    """It is drawn for each segment: the next one ends before its age."""
    await stage.start(segment_ms=str(HOUR_MS))
    await stage.alter(HOUR_MS)
    await stage.append("x", age_ms=3 * HOUR_MS)
    await stage.append("x", age_ms=HOUR_MS)
    assert len(stage.log.segments) == 2
    jitter_ms = stage.log._local._roll_jitter_ms
    assert jitter_ms > 0
    await stage.append("x", age_ms=jitter_ms - 1)
    assert len(stage.log.segments) == 3


async def segment_ms(stage: Stage) -> None:
    await stage.start()
    await stage.append("x", age_ms=HOUR_MS)
    await stage.append("x")
    assert len(stage.log.segments) == 1
    await stage.alter(1000)
    await stage.append("x")
    assert len(stage.log.segments) == 2


TOPIC_PROOFS: dict[str, Proof] = {
    "cleanup.policy": cleanup_policy,
    "compression.gzip.level": proof_of_level("gzip", 1, 9),
    "compression.lz4.level": proof_of_level("lz4", 1, 12),
    "compression.type": compression_type,
    "compression.zstd.level": proof_of_level("zstd", -100, 19),
    "delete.retention.ms": delete_retention_ms,
    "file.delete.delay.ms": file_delete_delay_ms,
    "flush.messages": flush_messages,
    "flush.ms": flush_ms,
    "index.interval.bytes": index_interval_bytes,
    "max.compaction.lag.ms": max_compaction_lag_ms,
    "max.message.bytes": max_message_bytes,
    "message.timestamp.after.max.ms": timestamp_after_max_ms,
    "message.timestamp.before.max.ms": timestamp_before_max_ms,
    "message.timestamp.type": timestamp_type,
    "min.cleanable.dirty.ratio": min_cleanable_dirty_ratio,
    "min.compaction.lag.ms": min_compaction_lag_ms,
    "min.insync.replicas": min_insync_replicas,
    "preallocate": preallocate,
    "retention.bytes": retention_bytes,
    "retention.ms": retention_ms,
    "segment.bytes": segment_bytes,
    "segment.index.bytes": segment_index_bytes,
    "segment.jitter.ms": segment_jitter_ms,
    "segment.ms": segment_ms,
    "unclean.leader.election.enable": unclean_leader_election_enable,
}
