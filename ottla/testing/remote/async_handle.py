"""The handle of brokers in another process, for tests that are coroutines: each call waits in a thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ottla.coordinator.facts import Fact
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.testing.async_handle import KafkaAsync, KafkaGroupAsync
from ottla.testing.audit.findings import AuditFinding
from ottla.testing.clock.handles import BrokerClockAsync
from ottla.testing.conditions import Upto
from ottla.testing.faults.faults import Faults
from ottla.testing.handle import RECORDS_MAX, Kafka
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.async_parts import (
    RemoteBrokersAsync,
    RemoteClockAsync,
    RemoteGroupAsync,
    RemotePartitionAsync,
)
from ottla.testing.remote.handle import RemoteKafka
from ottla.testing.seeds.seed_loader import SeedReport
from ottla.testing.snapshots.snapshots import RestoreReport, SnapshotReport
from ottla.testing.surroundings.disks import BrokerDisk
from ottla.testing.surroundings.handles import KafkaBrokerAsync, KafkaBrokers, KafkaPartitionAsync
from ottla.testing.surroundings.links import Links
from ottla.testing.usage import checks_usage
from ottla.testing.views import ConnectionView, LogChange, ProducerView, StoredRecord, TopicView, TransactionView
from ottla.testing.worlds import ResetReport
from ottla.testing.writing import GivenRecord, ProduceOptions

if TYPE_CHECKING:
    from ottla.testing.fact_stream import FactStream
    from ottla.testing.step_lists.handles import KafkaScript
    from ottla.testing.step_lists.steps import GivenScript
    from ottla.testing.wire_capture.recording import KafkaWireAsync


@checks_usage
class RemoteKafkaAsync(KafkaAsync):
    def __init__(self, control: RemoteControl) -> None:
        self._control = control
        self._kafka = RemoteKafka(control)

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._kafka.cluster_id

    @property
    def prefix(self) -> str:
        return self._kafka.prefix

    @property
    def faults(self) -> Faults:
        return self._kafka.faults

    async def audit(self) -> list[AuditFinding]:
        return await asyncio.to_thread(self._kafka.audit)

    async def script(self, given: "GivenScript") -> "KafkaScript":
        return await asyncio.to_thread(self._kafka.script, given)

    @property
    def clock(self) -> BrokerClockAsync:
        return RemoteClockAsync(self._kafka.clock)

    @property
    def wire(self) -> "KafkaWireAsync":
        raise self._control.not_served("captures")

    @property
    def brokers(self) -> KafkaBrokers[KafkaBrokerAsync]:
        return RemoteBrokersAsync(self._kafka.brokers)

    @property
    def links(self) -> Links:
        return self._kafka.links

    def disk(self, node_id: int) -> BrokerDisk:
        return self._kafka.disk(node_id)

    def partition(self, topic: str, index: int) -> KafkaPartitionAsync:
        return RemotePartitionAsync(self._kafka.partition(topic, index))

    async def node_ids(self) -> list[int]:
        return await asyncio.to_thread(lambda: self._kafka.node_ids)

    async def connections(self) -> list[ConnectionView]:
        return await asyncio.to_thread(lambda: self._kafka.connections)

    async def topics(self) -> list[str]:
        return await asyncio.to_thread(lambda: self._kafka.topics)

    async def topic(self, name: str) -> TopicView | None:
        try:
            return await asyncio.to_thread(self._kafka.topic(name).describe)
        except UnknownTopicOrPartition:
            return None

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        await asyncio.to_thread(
            self._kafka.create_topic, name, partitions, replication_factor=replication_factor, configs=configs
        )

    async def delete_topic(self, name: str) -> None:
        await asyncio.to_thread(self._kafka.topic(name).delete)

    async def add_partitions(self, name: str, count: int) -> None:
        await asyncio.to_thread(self._kafka.topic(name).add_partitions, count)

    async def delete_records(self, name: str, partition: int, *, before: int) -> None:
        await asyncio.to_thread(self._kafka.topic(name).delete_records, partition, before=before)

    async def alter_topic(self, name: str, configs: Mapping[str, object]) -> None:
        await asyncio.to_thread(self._kafka.topic(name).alter, configs)

    async def roll(self, topic: str) -> list[LogChange]:
        return await asyncio.to_thread(self._kafka.topic(topic).roll)

    async def apply_retention(self, topic: str) -> list[LogChange]:
        return await asyncio.to_thread(self._kafka.topic(topic).apply_retention)

    async def compact(self, topic: str) -> list[LogChange]:
        return await asyncio.to_thread(self._kafka.topic(topic).compact)

    async def produce(
        self, topic: str, records: Sequence[GivenRecord], **options: Unpack[ProduceOptions]
    ) -> list[tuple[int, int]]:
        return await asyncio.to_thread(lambda: self._kafka.produce(topic, records, **options))

    async def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
        isolation: str = "read_committed",
        limit: int = RECORDS_MAX,
    ) -> list[StoredRecord]:
        return await asyncio.to_thread(
            self._kafka.records, topic, partition, start=start, stop=stop, isolation=isolation, limit=limit
        )

    async def groups(self) -> list[str]:
        return await asyncio.to_thread(lambda: self._kafka.groups)

    def group(self, group_id: str) -> KafkaGroupAsync:
        return RemoteGroupAsync(self._kafka.group(group_id))

    async def wait(self, predicate: Callable[[Kafka], object], *, describe: str, within: float | None = None) -> None:
        await asyncio.to_thread(self._kafka.wait, predicate, describe=describe, within=within)

    async def wait_for_records(self, topic: str, count: int, *, within: float | None = None) -> None:
        await asyncio.to_thread(self._kafka.wait_for_records, topic, count, within=within)

    async def wait_until_consumed(
        self, topic: str, *, count: int | None = None, upto: Upto | None = None, within: float | None = None
    ) -> None:
        await asyncio.to_thread(self._kafka.wait_until_consumed, topic, count=count, upto=upto, within=within)

    async def wait_until_in_sync(self, topic: str, *, within: float | None = None) -> None:
        await asyncio.to_thread(self._kafka.wait_until_in_sync, topic, within=within)

    async def wait_until_leader(
        self, topic: str, partition: int, *, node: int | None = None, within: float | None = None
    ) -> None:
        await asyncio.to_thread(self._kafka.wait_until_leader, topic, partition, node=node, within=within)

    async def wait_until_idle(self, *, ms: float = 50, within: float | None = None) -> None:
        await asyncio.to_thread(self._kafka.wait_until_idle, ms=ms, within=within)

    async def events(self, *kinds: type[Fact], within: float | None = None) -> "FactStream":
        return self._kafka.events(*kinds, within=within)

    async def producers(self) -> list[ProducerView]:
        return self._kafka.producers

    async def transactions(self) -> list[TransactionView]:
        return self._kafka.transactions

    async def reset(self) -> ResetReport:
        return await asyncio.to_thread(self._kafka.reset)

    async def load(self, seed: str | Path | Mapping[str, Any]) -> SeedReport:
        return await asyncio.to_thread(self._kafka.load, seed)

    async def snapshot(self, name: str) -> SnapshotReport:
        return await asyncio.to_thread(self._kafka.snapshot, name)

    async def restore(self, name: str, *, members: str = "leave") -> RestoreReport:
        return await asyncio.to_thread(self._kafka.restore, name, members=members)
