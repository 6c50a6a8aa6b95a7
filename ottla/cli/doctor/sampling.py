"""Reading a sample of a cluster: brokers, topics, partitions; groups are in `group_sampling`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import time

from ottla.cli.client import EARLIEST, LATEST, TopicPartition
from ottla.cli.doctor.asker import Asker, indexes_by_topic, pages
from ottla.cli.doctor.connecting import AddressLook, clock_at
from ottla.cli.doctor.group_sampling import sample_groups
from ottla.cli.doctor.sample import Sample, SeenBroker, SeenGroup, SeenPartition
from ottla.cli.failures import ClientError
from ottla.cli.operations.brokers import BROKER_RESOURCE, log_directories
from ottla.cli.operations.cluster import TOPIC_RESOURCE
from ottla.cli.operations.cluster_health import ADMIN_KEYSTORE, ADMIN_LISTENER, admin_context, reachable_admin
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataResponse

MAX_TIMESTAMP = -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TOPICS_PER_REQUEST = 500
# Of the doctor itself: it must not find what it has made.
PROBE_TOPIC = "ottla-doctor"
TOPIC_CONFIGS = (
    "min.insync.replicas", "unclean.leader.election.enable", "retention.ms", "message.format.version",
)  # fmt: skip
BROKER_CONFIGS = ("auto.create.topics.enable", "transaction.max.timeout.ms", ADMIN_LISTENER, ADMIN_KEYSTORE)


@dataclass(frozen=True, slots=True)
class Scope:
    """The topics and groups to look at; none named: all."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def has_topic(self, topic: str) -> bool:
        return topic != PROBE_TOPIC and (not self.topics or topic in self.topics)


class Sampler:
    def __init__(self, asker: Asker, looks: Mapping[int, AddressLook], scope: Scope) -> None:
        """`looks` are those at the brokers' advertised addresses."""
        self._asker = asker
        self._looks = looks
        self._scope = scope

    async def sample(self, *, is_last: bool) -> Sample:
        """What does not change is read once, for the last one."""
        metadata = await self._asker.client.metadata(None)
        partitions = self._partitions(metadata)
        for name in {*self._scope.topics} - {topic for topic, _ in partitions}:
            self._asker.note("D9", f"topic {name}: the brokers do not list it")
        brokers = {row.node_id: SeenBroker(row.node_id, row.host, row.port, row.rack) for row in metadata.brokers}
        found, groups, seen, configs = await asyncio.gather(
            self._with_offsets(partitions, is_last=is_last),
            self._groups(),
            self._with_details(brokers, is_last=is_last),
            self._topic_configs(sorted({topic for topic, _ in partitions})) if is_last else _nothing(),
        )
        return Sample(
            at_s=asyncio.get_running_loop().time(),
            wall_ms=round(time() * 1000),
            cluster_id=metadata.cluster_id,
            controller=metadata.controller_id if metadata.controller_id >= 0 else None,
            brokers=seen,
            partitions=found,
            groups=groups,
            topic_configs=configs,
            internal_topics=frozenset(str(topic.name) for topic in metadata.topics if topic.is_internal),
        )

    def _partitions(self, metadata: MetadataResponse) -> dict[TopicPartition, SeenPartition]:
        return {
            (str(topic.name), row.partition_index): SeenPartition(
                row.leader_id if row.leader_id >= 0 else None, tuple(row.replica_nodes), tuple(row.isr_nodes)
            )
            for topic in metadata.topics
            if self._scope.has_topic(str(topic.name))
            for row in topic.partitions
        }

    # Offsets.

    async def _with_offsets(
        self, partitions: Mapping[TopicPartition, SeenPartition], *, is_last: bool
    ) -> dict[TopicPartition, SeenPartition]:
        led: dict[int, list[TopicPartition]] = {}
        for key, partition in sorted(partitions.items()):
            if partition.leader is not None and partition.leader in self._asker.brokers:
                led.setdefault(partition.leader, []).append(key)
        stable = await self._offsets(led, LATEST, READ_COMMITTED)
        # In this order: the end only moves on, so it is not before the last stable offset.
        ends = await self._offsets(led, LATEST, READ_UNCOMMITTED)
        starts = await self._offsets(led, EARLIEST, READ_UNCOMMITTED) if is_last else {}
        newest = await self._offsets(led, MAX_TIMESTAMP, READ_UNCOMMITTED) if is_last else {}
        return {
            key: replace(
                partition,
                log_start_offset=starts.get(key, (None, None))[0],
                high_watermark=ends.get(key, (None, None))[0],
                last_stable_offset=stable.get(key, (None, None))[0],
                newest_ms=newest.get(key, (None, None))[1],
            )
            for key, partition in partitions.items()
        }

    async def _offsets(
        self, led: Mapping[int, Sequence[TopicPartition]], timestamp: int, isolation_level: int
    ) -> dict[TopicPartition, tuple[int | None, int | None]]:
        """Offset and timestamp, None for what is not there."""

        def build(page: Sequence[TopicPartition]) -> ListOffsetsRequest:
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in indexes],
                )
                for name, indexes in indexes_by_topic(page).items()
            ]
            return ListOffsetsRequest(
                replica_id=-1, isolation_level=isolation_level, topics=topics, timeout_ms=self._asker.client.timeout_ms
            )

        check, what = ("D10", "largest timestamps") if timestamp == MAX_TIMESTAMP else ("D9", "offsets")
        answers = await self._asker.ask_leaders(check, what, led, build, ListOffsetsResponse)
        return {
            (topic.name, row.partition_index): (_known(row.offset), _known(row.timestamp))
            for answer in answers
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE
        }

    # Groups.

    async def _groups(self) -> dict[str, SeenGroup]:
        return await sample_groups(self._asker, self._scope.groups)

    # Brokers.

    async def _with_details(self, brokers: Mapping[int, SeenBroker], *, is_last: bool) -> dict[int, SeenBroker]:
        found = await asyncio.gather(*(self._detailed(each, is_last=is_last) for each in brokers.values()))
        return {each.node_id: each for each in found}

    async def _detailed(self, broker: SeenBroker, *, is_last: bool) -> SeenBroker:
        look = self._looks.get(broker.node_id)
        if look is None or broker.node_id not in self._asker.brokers:
            return broker
        broker = replace(broker, ranges=look.ranges, supported=look.supported, finalized=look.finalized)
        try:
            self._asker.requests += 1
            broker = replace(broker, log_dirs=tuple(await log_directories(self._asker.client, broker.node_id)))
        except ClientError as error:
            self._asker.note("D11", f"log directories of broker {broker.node_id}: {error}")
        if not is_last:
            return broker
        broker = replace(broker, configs=await self._broker_configs(broker.node_id))
        return await self._with_clock(broker)

    async def _with_clock(self, broker: SeenBroker) -> SeenBroker:
        configs = broker.configs or {}
        address = reachable_admin(configs.get(ADMIN_LISTENER, "off"), broker.host)
        clock = None if address is None else await clock_at(address, admin_context(configs, self._asker.client.tls))
        return broker if clock is None else replace(broker, clock_ahead_ms=clock[0], clock_within_ms=clock[1])

    async def _broker_configs(self, node_id: int) -> dict[str, str] | None:
        found = await self._configs(node_id, BROKER_RESOURCE, [str(node_id)], BROKER_CONFIGS)
        return None if found is None else found.get(str(node_id))

    async def _topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        if not self._asker.brokers:
            return found
        node_id = min(self._asker.brokers)
        for page in pages(topics, TOPICS_PER_REQUEST):
            described = await self._configs(node_id, TOPIC_RESOURCE, page, TOPIC_CONFIGS)
            if described is None:
                break
            found.update(described)
        return found

    async def _configs(
        self, node_id: int, kind: int, names: Sequence[str], keys: Sequence[str]
    ) -> dict[str, dict[str, str]] | None:
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[*keys])
            for name in names
        ]
        request = DescribeConfigsRequest(resources=resources)
        response = await self._asker.ask("D12", "configs", node_id, request, DescribeConfigsResponse)
        if response is None:
            return None
        return {
            result.resource_name: {row.name: row.value for row in result.configs if row.value is not None}
            for result in response.results
            if result.error_code == ErrorCode.NONE
        }


async def _nothing() -> dict[str, dict[str, str]]:
    return {}


def _known(value: int) -> int | None:
    return value if value >= 0 else None
