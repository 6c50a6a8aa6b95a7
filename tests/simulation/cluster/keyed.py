"""A compacted topic of clients: what must be there at the end follows from the keys (I-5).

One producer writes values and tombstones under a few keys, each record once. Of every key the last acknowledged record
decides, or one that was never answered: that may have been written late.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.protocol.records.record import Record, build_batch
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.cluster.producing import ACKS_ALL, produce_request

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

KEYED = "keyed"
PARTITION: Partition = (KEYED, 0)
KEYS = 6
TOMBSTONES = 0.25
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "700", "delete.retention.ms": "3000"}

Value = str | None
"""None is a tombstone, or no record at all: in the end they look alike."""


def keyed_topic() -> CreatableTopic:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
    return CreatableTopic(name=KEYED, num_partitions=1, replication_factor=3, configs=configs)


@dataclass
class KeyedLedger:
    """What the end may find under each key."""

    _last: dict[str, Value] = field(default_factory=dict)
    """The last acknowledged one."""
    _unanswered: dict[str, list[Value]] = field(default_factory=lambda: defaultdict(list))

    def send(self, key: str, value: Value) -> None:
        """From now on it may be written at any time, or never."""
        self._unanswered[key].append(value)

    def acknowledge(self, key: str, value: Value) -> None:
        self._unanswered[key].remove(value)
        self._last[key] = value

    def wrong(self, records: Iterable[Record]) -> list[tuple[str, str]]:
        """Each key, and what is wrong with it. `records` are those of the log, in its order."""
        latest = {
            bytes(record.key or b"").decode(): None if record.value is None else bytes(record.value).decode()
            for record in records
        }
        wrong: list[tuple[str, str]] = []
        for key in {**self._last, **self._unanswered}:
            possible = [self._last.get(key), *self._unanswered[key]]
            if latest.get(key) not in possible:
                wrong.append((key, f"{key} is {latest.get(key)}, expected is one of {possible}"))
        return wrong


@dataclass
class KeyedProducer:
    world: "ClusterWorld"
    rng: random.Random
    name: str
    ledger: KeyedLedger = field(default_factory=KeyedLedger)
    sent: int = 0

    def __post_init__(self) -> None:
        self.client = Client(self.world, self.rng, self.name, [KEYED])
        self.version = self.rng.randint(3, 11)

    async def live(self) -> None:
        while not self.world.writing_is_over:
            try:
                await self._produce()
            except OSError:
                self.client.metadata_is_stale()
            await self.world.sleep_ms(self.rng.randint(5, self.world.plan.produce_every_ms))
        self.client.close()

    async def _produce(self) -> None:
        wire, _ = await self.client.leader(PARTITION)
        written = [self._next_record() for _ in range(self.rng.randint(1, 4))]
        now_ms = self.world.wall_ms()
        records = [
            Record(timestamp=now_ms, key=key.encode(), value=None if value is None else value.encode())
            for key, value in written
        ]
        for key, value in written:
            self.ledger.send(key, value)
        request = produce_request(PARTITION, bytes(build_batch(records)), ACKS_ALL)
        response = await wire.call(request, self.version, within_ms=REQUEST_TIMEOUT_MS)
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if error is not ErrorCode.NONE:
            self.client.metadata_is_stale()
            self.world.judge_error(error, f"{self.name}: produce")
            return
        self.world.judge.counts["keyed records acknowledged"] += len(written)
        for key, value in written:
            self.ledger.acknowledge(key, value)

    def _next_record(self) -> tuple[str, Value]:
        key = f"key-{self.rng.randrange(KEYS)}"
        self.sent += 1
        return key, None if self.rng.random() < TOMBSTONES else f"{key}/{self.sent}"
