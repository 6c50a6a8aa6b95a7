"""What brokers remember, read on their loop without a request: topics, records, groups, connections."""

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.broker.assembly import Parts
from ottla.cluster.image import CONSUMER_OFFSETS, INTERNAL_TOPICS, NO_LEADER, MetadataImage, PartitionInfo, TopicInfo
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_assignment, parse_subscribed_topics
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.protocol.primitives import DecodeError
from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.control import parse_marker
from ottla.protocol.records.record import Record
from ottla.replication.partition import Partition
from ottla.testing.hosting import HostedBrokers
from ottla.testing.log_records import ISOLATION, NO_LIMIT, RecordCounts, records_of
from ottla.testing.views import (
    ConnectionView,
    GroupView,
    MemberView,
    PartitionView,
    ProducerView,
    StoredRecord,
    TopicView,
    TransactionView,
)
from ottla.testing.wire import WireRing

if TYPE_CHECKING:
    from ottla.coordinator.classic.group import ClassicGroup
    from ottla.coordinator.classic.member import Member
    from ottla.coordinator.group_shard import GroupShard

NO_STATE = "Dead"
NAMES_SHOWN = 5
NO_SEQUENCE = -1


class TooManyRecordsError(Exception):
    """A read found more records than its limit."""


class BrokerReader:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, hosted: HostedBrokers, wire: WireRing) -> None:
        self._hosted = hosted
        self._wire = wire
        self._counts, self._delivered, self._undelivered = RecordCounts(), RecordCounts(), RecordCounts()

    # Topics.

    @property
    def image(self) -> MetadataImage:
        """That of the broker that has seen most. Raises NotRunningError."""
        images = [parts.metadata.image for parts in self._hosted.running()]
        return max(images, key=lambda image: image.revision)

    def topic_names(self) -> list[str]:
        """Without those that brokers keep their own state in."""
        return sorted(name for name in self.image.topics if name not in INTERNAL_TOPICS)

    def topic(self, name: str) -> TopicView | None:
        topic = self.image.topic(name)
        if topic is None:
            return None
        partitions = tuple(self._partition(topic, index, state) for index, state in enumerate(topic.partitions))
        return TopicView(name, topic.topic_id, partitions, dict(topic.configs))

    def leader(self, topic: str, index: int) -> Partition | None:
        """The replica that leads, where its broker runs."""
        state = self.image.partition(topic, index)
        parts = None if state is None else self._hosted.parts().get(state.leader)
        partition = None if parts is None else parts.replicas.find(topic, index)
        return partition if partition is not None and partition.is_leader else None

    def leader_now(self, topic: str, index: int) -> Partition:
        """Raises UnknownTopicOrPartition, also where no broker leads that runs."""
        replica = self.leader(topic, index)
        if replica is None:
            if self.image.partition(topic, index) is None:
                raise self.no_partition(topic, index)
            raise UnknownTopicOrPartition(f"{topic}-{index} has no leader that runs")
        return replica

    def partition(self, name: str, index: int) -> PartitionView:
        """Raises UnknownTopicOrPartition."""
        view = self.topic(name)
        if view is None or not 0 <= index < len(view.partitions):
            raise self.no_partition(name, index)
        return view.partitions[index]

    def no_topic(self, name: str) -> UnknownTopicOrPartition:
        """The error that says so, with the topics that there are."""
        return UnknownTopicOrPartition(f"there is no topic {name!r}; {near_names('topic', name, self.topic_names())}")

    def no_partition(self, name: str, index: int) -> UnknownTopicOrPartition:
        """The error that says so, with how many partitions there are, or which topics."""
        topic = self.image.topic(name)
        if topic is None:
            return self.no_topic(name)
        count = len(topic.partitions)
        has = "1 partition" if count == 1 else f"{count} partitions"
        return UnknownTopicOrPartition(f"there is no partition {name}-{index}: {name} has {has}")

    def _partition(self, topic: TopicInfo, index: int, state: PartitionInfo) -> PartitionView:
        known: dict[str, Any] = {
            "topic": topic.name,
            "partition": index,
            "leader": None if state.leader == NO_LEADER else state.leader,
            "leader_epoch": state.leader_epoch,
            "replicas": state.replicas,
            "isr": state.isr,
        }
        replica = self.leader(topic.name, index)
        if replica is not None:
            known |= {
                "log_start_offset": replica.log.log_start_offset,
                "last_stable_offset": replica.last_stable_offset,
                "high_watermark": replica.high_watermark,
                "log_end_offset": replica.log.log_end_offset,
            }
        return PartitionView(**known)

    # Records.

    def records(
        self, name: str, partition: int | None, start: int, stop: int | None, isolation: str, limit: int
    ) -> list[StoredRecord]:
        """Of each partition from offset `start` on, before `stop`. Raises UnknownTopicOrPartition, TooManyRecordsError,
        ValueError for another isolation."""
        if isolation not in ISOLATION:
            raise ValueError(f"isolation={isolation!r}: expected one of {', '.join(ISOLATION)}")
        topic = self.image.topic(name)
        if topic is None:
            raise self.no_topic(name)
        indexes = range(len(topic.partitions)) if partition is None else [partition]
        found: list[list[StoredRecord]] = []
        for index in indexes:
            replica = self.leader_now(name, index)
            room = limit - sum(map(len, found))
            read = islice(records_of(replica, start, stop, isolation), room + 1)
            found.append([_stored(replica, header, record) for header, record in read])
            if len(found[-1]) > room:
                raise TooManyRecordsError(f"{name} has more than {limit} records: give another limit")
        # Each partition stays in its order, whatever the timestamps.
        return list(merge(*found, key=lambda record: (record.timestamp, record.partition)))

    def has_records(self, name: str, partition: int | None, start: int, isolation: str) -> bool:
        """Whether there is one from offset `start` on, as `records` gives them."""
        return any(
            replica is not None and next(records_of(replica, start, None, isolation), None) is not None
            for index, replica in self._leaders(name)
            if partition in (None, index)
        )

    def record_count(self, name: str, enough: int = NO_LIMIT) -> int:
        """Committed records, as readers see them; counted no further than to `enough`."""
        count = 0
        for _, replica in self._leaders(name):
            if replica is not None and count < enough:
                count += self._counts.count(replica, 0, replica.last_stable_offset, enough - count)
        return count

    def delivered_count(self, name: str, enough: int = NO_LIMIT) -> int:
        """The same of what consumers were given: from the first offset of a partition to the last."""
        count = 0
        for index, replica in self._leaders(name):
            if replica is not None and count < enough:
                start, end = self._wire.deliveries.range(name, replica.topic_id, index)
                count += self._delivered.count(replica, start, end, enough - count)
        return count

    def is_delivered(self, name: str, index: int, upto: int | None) -> bool:
        """Whether consumers were given all committed records before an offset; None: all that there are."""
        replica = self.leader(name, index)
        if replica is None:
            return False
        end = replica.last_stable_offset if upto is None else upto
        _, delivered = self._wire.deliveries.range(name, replica.topic_id, index)
        if delivered >= end:
            return True
        # A record may still come before an offset that the log has not reached.
        return end <= replica.last_stable_offset and not self._undelivered.count(replica, delivered, end, enough=1)

    def _leaders(self, name: str) -> Iterator[tuple[int, Partition | None]]:
        topic = self.image.topic(name)
        for index in range(0 if topic is None else len(topic.partitions)):
            yield index, self.leader(name, index)

    # Groups.

    def group_ids(self) -> list[str]:
        found: dict[str, None] = {}
        for shard, _ in self._shards():
            found |= dict.fromkeys((*shard.groups, *shard.durable.offsets))
        return sorted(found)

    def group(self, group_id: str) -> GroupView:
        for shard, parts in self._shards():
            group = shard.groups.get(group_id)
            logged = shard.durable.offsets.get(group_id, {})
            if group is None and not logged:
                continue
            offsets = {place: each.committed.offset for place, each in sorted(logged.items())}
            return _group_view(group_id, group, offsets, parts.runtime.broker_clock.now_ms())
        return no_group(group_id)

    def lag(self, view: GroupView, topic: str) -> dict[int, int]:
        """By partition, up to the high watermark. Where the group has committed nothing, all records are left."""
        return lag_of(view, self.topic(topic))

    def coordinators_missing(self) -> int:
        """How many partitions of `__consumer_offsets` no broker serves."""
        topic = self.image.topic(CONSUMER_OFFSETS)
        return (0 if topic is None else len(topic.partitions)) - sum(1 for _ in self._shards())

    def _shards(self) -> "Iterator[tuple[GroupShard, Parts]]":
        for parts in self._hosted.parts().values():
            for shard in parts.group_loader.loaded_shards():
                yield shard, parts

    # Producers.

    def producers(self) -> list[ProducerView]:
        """Of all partitions, as their leaders remember them."""
        leaders = [
            (name, index, self.leader(name, index))
            for name in self.topic_names()
            for index in range(len(self.image.topics[name].partitions))
        ]
        return [
            ProducerView(
                topic=name,
                partition=index,
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.batches[-1].last_sequence if state.batches else NO_SEQUENCE,
                last_timestamp=state.last_timestamp,
                transaction_first_offset=state.transaction_first_offset,
            )
            for name, index, leader in leaders
            if leader is not None
            for producer_id, state in leader.log.producers.states.items()
        ]

    def transactions(self) -> list[TransactionView]:
        """All transactional ids that are not forgotten."""
        entries = [
            entry
            for parts in self._hosted.parts().values()
            for shard in parts.transaction_loader.loaded_shards()
            for entry in shard.entries.values()
        ]
        return [
            TransactionView(
                transactional_id=entry.transactional_id,
                state=entry.metadata.state.kafka_name,
                producer_id=entry.metadata.producer_id,
                producer_epoch=entry.metadata.producer_epoch,
                timeout_ms=entry.metadata.timeout_ms,
                started_ms=entry.metadata.start_ms,
                partitions=tuple(sorted(entry.metadata.partitions)),
            )
            for entry in sorted(entries, key=lambda entry: entry.transactional_id)
        ]

    # Connections.

    def connection_ids(self) -> list[int]:
        """Of all connections, those of brokers too."""
        return [id(each) for parts in self._hosted.parts().values() for each in parts.server.connections]

    def connections(self, worker: str = "") -> list[ConnectionView]:
        """Those of clients, or of the clients of a worker, in the order in which they were opened."""
        views: list[ConnectionView] = []
        for parts in self._hosted.parts().values():
            for connection in parts.server.connections:
                notes = self._wire.notes_of(connection)
                if notes.is_of_broker or (worker and notes.worker != worker):
                    continue
                client = connection.client
                software = "" if client is None else f"{client.software_name} {client.software_version}".strip()
                views.append(
                    ConnectionView(
                        name=notes.name,
                        client_id=notes.client_id,
                        software=software,
                        address=connection.peer_host,
                        principal=str(connection.principal),
                        listener=connection.listener_name,
                        apis={api: tuple(sorted(versions)) for api, versions in sorted(notes.apis.items())},
                        groups=tuple(notes.groups),
                        opened_in=notes.opened_in,
                        in_flight=len(connection.parked),
                    )
                )
        return views


def near_names(kind: str, name: str, known: list[str]) -> str:
    """Which ones there are, the nearest first."""
    if not known:
        return f"there is no {kind} at all"
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=NAMES_SHOWN, cutoff=0.5) or known[:NAMES_SHOWN]
    return f"there is {', '.join(near)}" + (f" and {len(known) - len(near)} more" if len(known) > len(near) else "")


def no_group(group_id: str) -> GroupView:
    """Of one that does not exist."""
    return GroupView(group_id, False, NO_STATE, -1, None, None, (), {})


def lag_of(view: GroupView, topic: TopicView | None) -> dict[int, int]:
    """By partition; see `BrokerReader.lag`."""
    return {
        each.partition: max(
            each.high_watermark - view.offsets.get((each.topic, each.partition), each.log_start_offset), 0
        )
        for each in (() if topic is None else topic.partitions)
    }


def _group_view(
    group_id: str, group: "ClassicGroup | None", offsets: Mapping[tuple[str, int], int], now_ms: int
) -> GroupView:
    if group is None:
        return GroupView(group_id, True, "Empty", 0, None, None, (), offsets)
    return GroupView(
        group_id=group_id,
        exists=True,
        state=str(group.state),
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        members=tuple(_member_view(group, member, now_ms) for member in group.members.values()),
        offsets=offsets,
    )


def _member_view(group: "ClassicGroup", member: "Member", now_ms: int) -> MemberView:
    waits_for = (
        "JoinGroup" if member.parked_join is not None else "SyncGroup" if member.parked_sync is not None else None
    )
    ends_in_ms = max(member.session_deadline_ms - now_ms, 0)
    return MemberView(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        subscription=_subscription(group, member),
        assignment=_assignment(group, member),
        waits_for=waits_for,
        last_heard_ms=0 if waits_for else max(member.session_timeout_ms - ends_in_ms, 0),
        session_ends_in_ms=ends_in_ms,
    )


def _subscription(group: "ClassicGroup", member: "Member") -> tuple[str, ...]:
    if group.protocol_type != PROTOCOL_TYPE or not member.protocols:
        return ()
    try:
        return tuple(parse_subscribed_topics(member.protocols[0][1]))
    except DecodeError:
        return ()


def _assignment(group: "ClassicGroup", member: "Member") -> dict[str, tuple[int, ...]]:
    if group.protocol_type != PROTOCOL_TYPE:
        return {}
    try:
        assigned = parse_assignment(member.assignment).assigned_partitions
    except DecodeError:
        return {}
    return {each.topic: tuple(each.partitions) for each in assigned}


def _stored(replica: Partition, header: BatchHeader, record: Record) -> StoredRecord:
    sequence = header.base_sequence
    return StoredRecord(
        topic=replica.topic,
        partition=replica.index,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        sequence=sequence if sequence < 0 else sequence + record.offset - header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        is_control=header.is_control and parse_marker(record.key, record.value) is not None,
    )
