"""A running broker and one property of it, which a proof alters."""

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from ottla.broker.config.definitions import SYNONYMS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iterate_batches
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
