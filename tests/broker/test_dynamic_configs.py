"""Every property that can be altered while the broker runs is obeyed by the running broker, at once.

One proof per property; `test_every_dynamic_property_has_a_proof` fails for one without. A topic config is altered for
the topic and by way of the server property behind it, for all brokers and for one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from enum import Enum
from typing import Any

import pytest

from ottla.broker.config.alter import Alteration, Operation
from ottla.broker.config.definitions import SERVER_OPTIONS, SYNONYMS, TOPIC_OPTIONS
from ottla.broker.config.options import Update
from ottla.broker.server.connection import HELD_BY_THROTTLE
from ottla.protocol.errors import ErrorCode, InvalidConfig, KafkaError
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.compression import Codec
from ottla.storage.log import Log
from tests.broker.virtual_cluster import Cluster, Node
from tests.storage.support import batch, keys_and_values

HOUR_MS = 3_600_000
CHECK_MS = 100
"""What the broker does from time to time it does this often here."""
STATIC = {
    "internal.segment.bytes.min": 1,
    "log.cleaner.backoff.ms": CHECK_MS,
    "log.retention.check.interval.ms": CHECK_MS,
    "producer.id.expiration.check.interval.ms": CHECK_MS,
    "min.insync.replicas": 2,
}
SEGMENT = {"segment_bytes": "1000"}
COMPACTED = {**SEGMENT, "cleanup_policy": "compact"}
FILE_REMOVAL_MS = 11_000


class Scope(Enum):
    TOPIC = "topic"
    ALL_BROKERS = "all brokers"
    ONE_BROKER = "one broker"


class Answer:
    error_code = 0
    error_message: str | None = None
    base_offset = 0


class Stage:
    """A running broker with a topic, and the property that a proof is about."""

    def __init__(self, cluster: Cluster, name: str, scope: Scope) -> None:
        self.cluster = cluster
        self.name = name
        self._scope = scope
        self.nodes: list[Node] = []

    @property
    def node(self) -> Node:
        """The leader of the topic's partition."""
        state = self.nodes[0].broker.image.partition("t", 0)
        leaders = [node for node in self.nodes if state is not None and node.node_id == state.leader]
        return leaders[0] if leaders else self.nodes[0]

    @property
    def log(self) -> Log:
        return self.node.broker.replicas.partition("t", 0).log

    async def start(self, **configs: str) -> None:
        await self._start(1, configs)

    async def start_two_brokers(self) -> None:
        await self._start(2, {})

    async def _start(self, brokers: int, configs: dict[str, str]) -> None:
        static = {name.replace(".", "_"): value for name, value in STATIC.items()}
        self.nodes = await self.cluster.started(*range(1, brokers + 1), **static)
        await self.cluster.create(self.nodes[0], "t", 1, brokers, **configs)
        await self.cluster.until(lambda: len(self.node.partition("t", 0).isr) == brokers)

    async def alter(self, value: object, node: Node | None = None) -> None:
        broker = (node or self.node).broker
        if self._scope is Scope.TOPIC:
            topic = broker.image.topic("t")
            assert topic is not None, "it was created"
            new = {**topic.configs, self.name: str(value)}
            alteration = broker.config_admin.alter_topic("t", lambda: new)
        else:
            new = {self._server_name: str(value)}
            of_all_brokers = self._scope is Scope.ALL_BROKERS
            alteration = broker.config_admin.alter_broker(lambda: new, of_all_brokers=of_all_brokers)
        await self.cluster.spawn(node or self.node, alteration)
        # Until the other brokers have seen it.
        await self.sleep(50)

    @property
    def _server_name(self) -> str:
        return SYNONYMS[self.name][0].server_name if self.name in SYNONYMS else self.name

    async def append(self, *values: str | None, key: str | None = "k", age_ms: int = 0, **fields: int) -> ErrorCode:
        def act(done: Callable[[ErrorCode], None]) -> None:
            replicas = self.node.broker.replicas
            records = batch(*values, key=key, timestamp=self.cluster.clock.wall_ms() - age_ms, **fields)
            try:
                replicas.append(replicas.partition("t", 0), records, -1, Answer())
            except KafkaError as error:
                done(error.code)
                return
            replicas.flush_and_notify()
            done(ErrorCode.NONE)

        code: ErrorCode = await self.cluster.call(self.node, act)
        return code

    async def append_segments(self, count: int, age_ms: int = 0) -> None:
        for n in range(count):
            assert await self.append(f"{n}" + "x" * 900, age_ms=age_ms) is ErrorCode.NONE

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    def codecs(self) -> list[int]:
        records = self.log.read(0, 1 << 20, upper_bound=self.log.log_end_offset, wait=True).records
        return [header.codec for _, header in iterate_batches(memoryview(bytes(records)))]

    def batch_sizes(self) -> list[int]:
        records = self.log.read(0, 1 << 20, upper_bound=self.log.log_end_offset, wait=True).records
        return [header.size_bytes for _, header in iterate_batches(memoryview(bytes(records)))]

    def record_count(self) -> int:
        return len(keys_and_values(self.log))


Proof = Callable[[Stage], Coroutine[Any, Any, None]]


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


async def producer_id_expiration_ms(stage: Stage) -> None:
    await stage.start()
    await stage.append("x", producer_id=7, producer_epoch=0, base_sequence=0)
    await stage.sleep(2 * CHECK_MS)
    assert set(stage.log.producers.states) == {7}
    await stage.alter(1)
    await stage.sleep(2 * CHECK_MS)
    assert set(stage.log.producers.states) == set()


async def log_cleaner_backoff_ms(stage: Stage) -> None:
    await stage.start(**COMPACTED, min_cleanable_dirty_ratio="0")
    await stage.alter(HOUR_MS)
    await stage.sleep(2 * CHECK_MS)
    await stage.append_segments(4)
    await stage.sleep(HOUR_MS // 2)
    assert stage.record_count() == 4
    await stage.alter(CHECK_MS)
    await stage.sleep(3 * CHECK_MS)
    assert stage.record_count() < 4


async def connections(stage: Stage) -> int:
    """How many are open after one more has been tried."""
    host = stage.node.host
    transport = await stage.cluster.network.connect(asyncio.Protocol, host, 9092)
    await stage.sleep(CHECK_MS)
    assert transport is not None
    return len(stage.node.broker.server.connections)


async def max_connections(stage: Stage) -> None:
    await stage.start()
    assert await connections(stage) == 1
    await stage.alter(1)
    assert await connections(stage) == 1
    await stage.alter(2)
    assert await connections(stage) == 2


async def max_connections_per_ip_overrides(stage: Stage) -> None:
    await stage.start()
    assert await connections(stage) == 1
    await stage.alter("client:1")
    assert await connections(stage) == 1
    await stage.alter("client:2")
    assert await connections(stage) == 2


async def max_connection_creation_rate(stage: Stage) -> None:
    """A rate that was raised is not paid for with what the old one owed."""
    await stage.start()
    await stage.alter(1)
    for _ in range(10):
        await connections(stage)
    assert newest_is_throttled(stage)
    await stage.alter(1000)
    await connections(stage)
    assert not newest_is_throttled(stage)


async def request_log_slow_ms(stage: Stage) -> None:
    await stage.start()
    times = stage.node.broker.server.times
    await stage.alter(0)
    assert not times.is_slow(HOUR_MS * 1_000_000)
    await stage.alter(20)
    assert times.is_slow(20_000_000)


async def log_level_revert_ms(stage: Stage) -> None:
    await stage.start()
    await stage.alter(HOUR_MS)
    loggers = stage.node.broker.parts.loggers
    at_start = loggers.levels()
    await stage.alter(2 * CHECK_MS)
    loggers.alter([Alteration("ottla", Operation.SET, "ERROR")], validate_only=False)
    assert loggers.levels() != at_start
    await stage.sleep(3 * CHECK_MS)
    assert loggers.levels() == at_start


def newest_is_throttled(stage: Stage) -> bool:
    newest = list(stage.node.broker.server.connections)[-1]
    return bool(newest._holds & HELD_BY_THROTTLE)


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
SERVER_PROOFS: dict[str, Proof] = {
    "log.cleaner.backoff.ms": log_cleaner_backoff_ms,
    "max.connections": max_connections,
    "max.connections.per.ip": max_connections,
    "max.connections.per.ip.overrides": max_connections_per_ip_overrides,
    "max.connection.creation.rate": max_connection_creation_rate,
    "ottla.log.level.revert.ms": log_level_revert_ms,
    "ottla.request.log.slow.ms": request_log_slow_ms,
    "producer.id.expiration.ms": producer_id_expiration_ms,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


def test_every_dynamic_property_has_a_proof() -> None:
    behind_topics = {SYNONYMS[name][0].server_name for name in TOPIC_PROOFS}
    dynamic = {name for name, option in SERVER_OPTIONS.items() if option.update is not Update.READ_ONLY}

    assert set(TOPIC_PROOFS) == set(TOPIC_OPTIONS)
    assert behind_topics | set(SERVER_PROOFS) == dynamic


@pytest.mark.parametrize("name", sorted(TOPIC_PROOFS))
@pytest.mark.parametrize("scope", Scope)
def test_running_broker_obeys_a_change_of_a_topic_config(cluster: Cluster, name: str, scope: Scope) -> None:
    server = SERVER_OPTIONS[SYNONYMS[name][0].server_name]
    if scope is Scope.ONE_BROKER and server.update is Update.ONLY_CLUSTER_WIDE:
        pytest.skip("it is refused for one broker")
    cluster.run(TOPIC_PROOFS[name](Stage(cluster, name, scope)))


@pytest.mark.parametrize("name", sorted(SERVER_PROOFS))
@pytest.mark.parametrize("scope", [Scope.ALL_BROKERS, Scope.ONE_BROKER])
def test_running_broker_obeys_a_change_of_a_property(cluster: Cluster, name: str, scope: Scope) -> None:
    cluster.run(SERVER_PROOFS[name](Stage(cluster, name, scope)))


def test_min_insync_replicas_of_one_broker_is_refused(cluster: Cluster) -> None:
    """As in Kafka with eligible leader replicas: leaders and the controller have to agree."""

    async def story() -> None:
        (node,) = await cluster.started(1)
        with pytest.raises(InvalidConfig, match="only for all"):
            await node.broker.config_admin.alter_broker(lambda: {"min.insync.replicas": "1"}, of_all_brokers=False)

    cluster.run(story())
