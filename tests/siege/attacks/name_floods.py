"""Names that a broker is asked to remember: of topics, groups, members, clients, producers."""

from typing import Any

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import Record, build_batch
from tests.fakes.frames import build_request_frame
from tests.siege.attacks.attack import BAIT, Attack
from tests.siege.attacks.crowd import Crowd, name

CONNECTIONS = 16
NAMES_AT_ONCE = 100
# The number of topics and of groups with offsets has no bound, here as with Kafka: what keeps them can be counted on.
TOPICS_MAX = 1_000
GROUPS_MAX = 20_000
LONG_NAME = 30_000
DELETE_AT_ONCE = 500
PRODUCERS_TOPIC = "siege-producers"


class TopicNames(Attack):
    """Metadata of topics that do not exist, and come into being by that."""

    name = "topic-names"

    def run(self) -> None:
        made: list[str] = []
        with self.connect(timeout_s=60) as wire:
            for _ in self.target.until_over():
                asked = made[:NAMES_AT_ONCE]
                if len(made) < TOPICS_MAX:
                    asked = [f"siege-{name(self.target.chance, 20)}" for _ in range(NAMES_AT_ONCE)]
                    made += asked
                wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in asked]), 4)
        self._made = made
        self.done["topics"] = len(made)

    def clean_up(self) -> None:
        with self.connect(timeout_s=60) as wire:
            for start in range(0, len(self._made), DELETE_AT_ONCE):
                names = self._made[start : start + DELETE_AT_ONCE]
                wire.call(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 5)


class GroupNames(Attack):
    """Groups that are asked for, joined and left alone, and committed to; members that never come back; long names."""

    name = "group-names"

    def run(self) -> None:
        self._committed: list[str] = []
        Crowd(self.connect, CONNECTIONS, self._requests, reads=True, done=self.done).run(self.target)
        self.done["groups committed to"] = len(self._committed)

    def clean_up(self) -> None:
        with self.connect(timeout_s=60) as wire:
            for start in range(0, len(self._committed), DELETE_AT_ONCE):
                names = self._committed[start : start + DELETE_AT_ONCE]
                for result in wire.call(DeleteGroupsRequest(groups_names=names), 1).results:
                    self.done[f"groups deleted, error {result.error_code}"] += 1

    def _requests(self) -> bytes:
        chance = self.target.chance
        group = f"siege-{name(chance, 20)}"
        requests: list[tuple[Any, int]] = [
            (FindCoordinatorRequest(key=group), 1),
            (_join(group), 5),
            (_join("siege-crowded"), 5),
            (OffsetFetchRequest(group_id=group, topics=None), 5),
        ]
        if chance.random() < 0.1:
            requests += [(FindCoordinatorRequest(key=name(chance, LONG_NAME)), 1), (_join(name(chance, LONG_NAME)), 5)]
        if len(self._committed) < GROUPS_MAX:
            self._committed.append(group)
            requests.append((_commit(group), 2))
        return b"".join(build_request_frame(request, version, 1, "siege") for request, version in requests)


class ProducerNames(Attack):
    """Client ids, transactional ids, software names, and producer ids that write one record each."""

    name = "producer-names"

    def run(self) -> None:
        self._producer_id = 1 << 40
        with self.connect(timeout_s=30) as wire:
            # A broker remembers a producer for a day, or until its topic is gone.
            wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=PRODUCERS_TOPIC)]), 4)
        Crowd(self.connect, CONNECTIONS, self._requests, reads=True, done=self.done).run(self.target)
        self.done["producers"] = self._producer_id - (1 << 40)

    def clean_up(self) -> None:
        with self.connect(timeout_s=30) as wire:
            wire.call(DeleteTopicsRequest(topic_names=[PRODUCERS_TOPIC], timeout_ms=30_000), 5)

    def _requests(self) -> bytes:
        chance = self.target.chance
        long = chance.random() < 0.1
        client_id = name(chance, LONG_NAME if long else 20)
        requests: list[tuple[Any, int]] = [
            (InitProducerIdRequest(transactional_id=name(chance, 20), transaction_timeout_ms=1000), 1),
            (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1),
            (ApiVersionsRequest(client_software_name=name(chance, 20), client_software_version=name(chance, 20)), 3),
            *((self._produce(), 7) for _ in range(10)),
        ]
        return b"".join(build_request_frame(request, version, 1, client_id) for request, version in requests)

    def _produce(self) -> ProduceRequest:
        self._producer_id += 1
        record = Record(offset=0, timestamp=0, key=None, value=b"siege")
        records = build_batch([record], producer_id=self._producer_id, producer_epoch=0, base_sequence=0)
        data = PartitionProduceData(index=0, records=memoryview(records))
        return ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=PRODUCERS_TOPIC, partition_data=[data])]
        )


def _join(group_id: str) -> JoinGroupRequest:
    """Without a member id: the broker gives one out and remembers it for the session timeout."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _commit(group_id: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=group_id)
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name=BAIT, partitions=[partition])])
