"""The handle for tests that are coroutines: `ottla.testing.handle` with methods to await.

What is awaited is the future of a call on the broker's own loop, so the loop of the test may be any loop of asyncio:
that of pytest-asyncio in every scope, of anyio, of `asyncio.run`. Only `bootstrap`, `cluster_id` and `client_config`
are known without waiting.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ottla.coordinator.facts import Fact
from ottla.testing import conditions
from ottla.testing.audit.findings import AuditFinding
from ottla.testing.clock.handles import BrokerClockAsync
from ottla.testing.conditions import Upto
from ottla.testing.handle import RECORDS_MAX, Kafka
from ottla.testing.profile import client_config
from ottla.testing.snapshots.snapshots import RestoreReport, SnapshotReport
from ottla.testing.surroundings.disks import BrokerDisk
from ottla.testing.surroundings.handles import KafkaBrokerAsync, KafkaBrokers, KafkaPartitionAsync
from ottla.testing.surroundings.links import Links
from ottla.testing.testbed import Testbed
from ottla.testing.usage import checks_usage
from ottla.testing.views import (
    ConnectionView,
    GroupRebalance,
    GroupView,
    LogChange,
    ProducerView,
    StoredRecord,
    TopicView,
    TransactionView,
)
from ottla.testing.waits import Condition
from ottla.testing.worlds import ResetReport
from ottla.testing.writing import GivenRecord, ProduceOptions

if TYPE_CHECKING:
    from ottla.testing.fact_stream import FactStream
    from ottla.testing.faults.actions import Action
    from ottla.testing.faults.faults import Fault, Faults
    from ottla.testing.seeds.seed_loader import SeedReport
    from ottla.testing.step_lists.handles import KafkaScript
    from ottla.testing.step_lists.steps import GivenScript
    from ottla.testing.wire_capture.recording import KafkaWireAsync


@checks_usage
class KafkaAsync:
    """Each method is that of `Kafka` with the same name, to await."""

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`: HOST:PORT, of a cluster all brokers."""
        return self._bed.hosted.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._bed.hosted.cluster_id

    @property
    def prefix(self) -> str:
        return ""

    @property
    def faults(self) -> "Faults":
        """The rules by which requests fail, wait or get lost: adding and removing one does not wait for anything."""
        return self._bed.hosted.fault_host.faults

    def fault(self, *, do: "Action | Mapping[str, Any] | str", **fields: Any) -> "Fault":
        return self.faults.fault(do=do, **fields)

    async def script(self, given: "GivenScript") -> "KafkaScript":
        from ottla.testing.step_lists.handles import begun

        return await self._bed.loop.wait(begun(self._bed, given))

    async def audit(self) -> list[AuditFinding]:
        return await self._bed.loop.wait_for_call(self._bed.auditor.findings)

    @property
    def clock(self) -> BrokerClockAsync:
        """The time that groups, transactions, retention and timestamps go by, with methods to await."""
        return BrokerClockAsync(self._bed)

    @property
    def wire(self) -> "KafkaWireAsync":
        from ottla.testing.wire_capture.recording import KafkaWireAsync

        return KafkaWireAsync(self._bed)

    @property
    def brokers(self) -> KafkaBrokers[KafkaBrokerAsync]:
        return KafkaBrokers(self._bed, KafkaBrokerAsync)

    @property
    def links(self) -> Links:
        """Their methods do not wait for anything, and are not awaited."""
        return self._bed.links

    def disk(self, node_id: int) -> BrokerDisk:
        """Its methods are not awaited either."""
        return self._bed.disk(node_id)

    def partition(self, topic: str, index: int) -> KafkaPartitionAsync:
        return KafkaPartitionAsync(self._bed, topic, index)

    def client_config(self, kind: str, library: str = "aiokafka") -> dict[str, Any]:
        return client_config(kind, library, self.bootstrap)

    async def node_ids(self) -> list[int]:
        return await self._bed.loop.wait_for_call(lambda: list(self._bed.hosted.parts()))

    async def connections(self) -> list[ConnectionView]:
        return await self._bed.loop.wait(self._bed.open_connections())

    async def topics(self) -> list[str]:
        return await self._bed.loop.wait_for_call(self._bed.reader.topic_names)

    async def topic(self, name: str) -> TopicView | None:
        """None where there is no such topic."""
        return await self._bed.loop.wait_for_call(self._bed.reader.topic, name)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        await self._bed.loop.wait(self._bed.writer.create_topic(name, partitions, replication_factor, configs or {}))

    async def delete_topic(self, name: str) -> None:
        await self._bed.loop.wait(self._bed.writer.delete_topic(name))

    async def add_partitions(self, name: str, count: int) -> None:
        await self._bed.loop.wait(self._bed.writer.add_partitions(name, count))

    async def delete_records(self, name: str, partition: int, *, before: int) -> None:
        await self._bed.loop.wait(self._bed.writer.delete_records(name, partition, before))

    async def alter_topic(self, name: str, configs: Mapping[str, object]) -> None:
        await self._bed.loop.wait(self._bed.writer.alter_topic(name, configs))

    async def roll(self, topic: str) -> list[LogChange]:
        return await self._bed.loop.wait(self._bed.log_jobs.roll(topic))

    async def apply_retention(self, topic: str) -> list[LogChange]:
        return await self._bed.loop.wait(self._bed.log_jobs.apply_retention(topic))

    async def compact(self, topic: str) -> list[LogChange]:
        return await self._bed.loop.wait(self._bed.log_jobs.compact(topic))

    async def produce(
        self, topic: str, records: Sequence[GivenRecord], **options: Unpack[ProduceOptions]
    ) -> list[tuple[int, int]]:
        return await self._bed.loop.wait(self._bed.writer.produce(topic, records, **options))

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
        return await self._bed.loop.wait_for_call(
            self._bed.reader.records, topic, partition, start, stop, isolation, limit
        )

    async def groups(self) -> list[str]:
        return await self._bed.loop.wait_for_call(self._bed.reader.group_ids)

    def group(self, group_id: str) -> "KafkaGroupAsync":
        return KafkaGroupAsync(self._bed, group_id)

    async def wait(self, predicate: Callable[[Kafka], object], *, describe: str, within: float | None = None) -> None:
        """The predicate is a plain function, and gets the handle of tests that block."""
        handle = Kafka(self._bed)
        await self._wait(conditions.GivenCondition(lambda: predicate(handle), describe), within)

    async def wait_for_records(self, topic: str, count: int, *, within: float | None = None) -> None:
        await self._wait(conditions.topic_records(self._bed.sources, topic, count), within)

    async def wait_until_consumed(
        self, topic: str, *, count: int | None = None, upto: Upto | None = None, within: float | None = None
    ) -> None:
        offsets = conditions.offsets_upto(count, upto)
        await self._wait(conditions.topic_consumed(self._bed.sources, topic, count, offsets), within)

    async def wait_until_in_sync(self, topic: str, *, within: float | None = None) -> None:
        await self._wait(conditions.topic_in_sync(self._bed.sources, topic), within)

    async def wait_until_leader(
        self, topic: str, partition: int, *, node: int | None = None, within: float | None = None
    ) -> None:
        await self._wait(conditions.partition_led_by(self._bed.sources, topic, partition, node), within)

    async def wait_until_idle(self, *, ms: float = 50, within: float | None = None) -> None:
        await self._wait(conditions.ClientsIdle(self._bed.sources, ms, self._bed.waits.look), within)

    async def events(self, *kinds: type[Fact], within: float | None = None) -> "FactStream":
        """`async for` gives them."""
        return await asyncio.to_thread(lambda: Kafka(self._bed).events(*kinds, within=within))

    async def producers(self) -> list[ProducerView]:
        return await self._bed.loop.wait_for_call(self._bed.reader.producers)

    async def transactions(self) -> list[TransactionView]:
        return await self._bed.loop.wait_for_call(self._bed.reader.transactions)

    async def reset(self) -> ResetReport:
        return await self._bed.loop.wait(self._bed.reset())

    async def load(self, seed: str | Path | Mapping[str, Any]) -> "SeedReport":
        return await self._bed.loop.wait(self._bed.load(seed))

    async def snapshot(self, name: str) -> SnapshotReport:
        return await self._bed.loop.wait(self._bed.snapshot(name))

    async def restore(self, name: str, *, members: str = "leave") -> RestoreReport:
        report = await self._bed.loop.wait(self._bed.restore(name, members=members))
        self._bed.clock.travellers.move_to(await self.clock.now())
        return report

    async def _wait(self, condition: Condition, within: float | None) -> None:
        await self._bed.loop.wait(self._bed.wait(condition, within))


@checks_usage
class KafkaGroupAsync:
    """Each method is that of `KafkaGroup` with the same name, to await; what are attributes there, `describe` gives."""

    def __init__(self, bed: Testbed, group_id: str) -> None:
        self._bed = bed
        self.group_id = group_id

    async def describe(self) -> GroupView:
        return await self._bed.loop.wait_for_call(self._bed.reader.group, self.group_id)

    async def lag(self, topic: str) -> dict[int, int]:
        read = self._bed.reader
        return await self._bed.loop.wait_for_call(lambda: read.lag(read.group(self.group_id), topic))

    async def history(self) -> list[GroupRebalance]:
        return await self._bed.loop.wait_for_call(self._bed.histories.of, self.group_id)

    async def facts(self) -> list[tuple[int, Fact]]:
        return list(await self._bed.loop.wait_for_call(self._bed.histories.facts_of, self.group_id))

    async def move_to(self, node_id: int) -> None:
        await self._bed.loop.wait(self._bed.control.move_group(self.group_id, node_id))

    async def delete(self) -> None:
        await self._bed.loop.wait(self._bed.group_commands.delete(self.group_id))

    async def set_offsets(self, topic: str, offsets: Mapping[int, int]) -> None:
        await self._bed.loop.wait(self._bed.group_commands.set_offsets(self.group_id, topic, offsets))

    async def evict(self, member: str, reason: str = "") -> str:
        return await self._bed.loop.wait(self._bed.group_commands.evict(self.group_id, member, reason))

    async def rebalance(self) -> None:
        await self._bed.loop.wait_for_call(self._bed.group_commands.rebalance, self.group_id)

    async def wait_until_stable(
        self, *, members: int | None = None, assigned: Mapping[str, int] | None = None, within: float | None = None
    ) -> None:
        await self._wait(conditions.group_stable(self._bed.sources, self.group_id, members, assigned), within)

    async def wait_until_empty(self, *, within: float | None = None) -> None:
        await self._wait(conditions.group_empty(self._bed.sources, self.group_id), within)

    async def wait_until_generation(self, generation: int, *, within: float | None = None) -> None:
        await self._wait(conditions.group_generation(self._bed.sources, self.group_id, generation), within)

    async def wait_until_lag(self, lag: int, *, topic: str, within: float | None = None) -> None:
        await self._wait(conditions.group_lag(self._bed.sources, self.group_id, lag, topic), within)

    async def wait_until_committed(
        self, topic: str, offsets: Mapping[int, int], *, within: float | None = None
    ) -> None:
        await self._wait(conditions.group_committed(self._bed.sources, self.group_id, topic, offsets), within)

    async def _wait(self, condition: Condition, within: float | None) -> None:
        await self._bed.loop.wait(self._bed.wait(condition, within))
