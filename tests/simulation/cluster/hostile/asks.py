"""Well-formed requests that a broker has to refuse: fields that nothing allows, and what belongs to others.

None of them is a request that somebody with the right to it could make: who knows the member id and the generation of
another, or its producer id and epoch, is that other as far as a broker can see, and does harm by right.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS, Partition
from tests.simulation.cluster.producing import batch_of

Ask = tuple[Any, int]
"""A request and its version."""

INT32_MAX, INT64_MIN = 2**31 - 1, -(2**63)
NO_PARTITIONS = (-1, -(2**31), 10**6, INT32_MAX)
NO_OFFSETS = (-5, INT64_MIN, 2**62)
EPOCHS_AHEAD = (100, 30_000)
STRANGER = "stranger-b9c1"
LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, EPOCH_AT, COUNT_AT = 8, 16, 21, 51, 57


@dataclass(frozen=True)
class Surroundings:
    """What a hostile client has found out about others."""

    rng: random.Random
    partition: Partition
    leader_epoch: int
    wall_ms: int
    groups: Sequence[str]
    transactional_ids: Sequence[str]
    producers: Sequence[tuple[int, int]]
    """Their ids and epochs."""
    session_ids: Sequence[int]

    def leader_epoch_ahead(self) -> int:
        return self.leader_epoch + self.rng.choice(EPOCHS_AHEAD)

    def producer(self) -> tuple[int, int]:
        """Of another, in an epoch that it does not reach."""
        producer_id, epoch = self.rng.choice([*self.producers, (INT32_MAX, 0)])
        return producer_id, self.rng.choice([-3, epoch + 100, 32_766])


# Records.


def fetch(around: Surroundings) -> Ask:
    """However long it may wait, there is nothing to wait for."""
    rng, (topic, index) = around.rng, around.partition
    epoch, offset = -1, 0
    match rng.randrange(3):
        case 0:
            index = rng.choice(NO_PARTITIONS)
        case 1:
            offset = rng.choice(NO_OFFSETS)
        case _:
            epoch = around.leader_epoch_ahead()
    sizes = [-1, 0, INT32_MAX, 1 << 20]
    part = FetchPartition(
        partition=index, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=rng.choice(sizes)
    )
    request = FetchRequest(
        max_wait_ms=rng.choice([-1, 0, INT32_MAX]),
        min_bytes=rng.choice([-1, 1, INT32_MAX]),
        max_bytes=rng.choice(sizes),
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    return request, rng.randint(9, 12)


def fetch_in_a_session(around: Surroundings) -> Ask:
    """One that it has not opened, at a step that it has not come to."""
    rng = around.rng
    session_id = rng.choice([*around.session_ids, 7, -1, INT32_MAX])
    request = FetchRequest(
        max_wait_ms=INT32_MAX,
        min_bytes=INT32_MAX,
        session_id=session_id,
        session_epoch=rng.choice([-7, 1_000_000, INT32_MAX]),
    )
    return request, rng.randint(7, 17)


def ahead_or_missing(around: Surroundings, index: int) -> tuple[int, int]:
    """A partition and a leader epoch: one that is still to come, or that of a partition which there is not."""
    if around.rng.random() < 0.5:
        return index, around.leader_epoch_ahead()
    return around.rng.choice(NO_PARTITIONS), -1


def list_offsets(around: Surroundings) -> Ask:
    rng, (topic, index) = around.rng, around.partition
    partition, leader_epoch = ahead_or_missing(around, index)
    asked = ListOffsetsPartition(
        partition_index=partition,
        current_leader_epoch=leader_epoch,
        timestamp=rng.choice([-1, -2, 0, INT64_MIN]),
    )
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    return ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=REQUEST_TIMEOUT_MS), rng.randint(4, 10)


def offset_for_leader_epoch(around: Surroundings) -> Ask:
    rng, (topic, index) = around.rng, around.partition
    partition, leader_epoch = ahead_or_missing(around, index)
    asked = OffsetForLeaderPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        leader_epoch=rng.choice([-1, 0, INT32_MAX]),
    )
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), rng.randint(2, 4)


def produce(around: Surroundings) -> Ask:
    rng, (topic, index) = around.rng, around.partition
    records, acks = batch_of(["hostile"], around.wall_ms), rng.choice([1, -1])
    match rng.randrange(4):
        case 0:
            index = rng.choice(NO_PARTITIONS)
        case 1:
            acks = rng.choice([7, -2])
        case _:
            records = _damaged_batch(around, records)
    data = [PartitionProduceData(index=index, records=records)]
    request = ProduceRequest(
        acks=acks, timeout_ms=rng.choice([-1, 1_000]), topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return request, rng.randint(3, 12)


def _damaged_batch(around: Surroundings, records: bytes) -> bytes:
    """No checksum is right but those of the last two: a producer id with an epoch that none has."""
    rng, batch = around.rng, bytearray(records)
    match rng.randrange(7):
        case 0:
            batch[-1] ^= 1 << rng.randrange(8)
        case 1:
            batch[MAGIC_AT] = rng.choice([0, 1, 3, 255])
        case 2:
            batch[LENGTH_AT : LENGTH_AT + 4] = rng.choice([-1, 0, INT32_MAX]).to_bytes(4, "big", signed=True)
        case 3:
            batch[COUNT_AT : COUNT_AT + 4] = rng.choice([-1, 0, INT32_MAX]).to_bytes(4, "big", signed=True)
        case 4:
            batch[ATTRIBUTES_AT + 1] |= 0x20
        case 5:
            del batch[rng.randrange(1, len(batch)) :]
        case _:
            producer_id, _ = around.producer()
            return batch_of(["hostile"], around.wall_ms, producer_id, -3, 0)
    return bytes(batch)


def delete_records(around: Surroundings) -> Ask:
    rng, (topic, index) = around.rng, around.partition
    asked = DeleteRecordsPartition(partition_index=index, offset=rng.choice(NO_OFFSETS))
    topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
    return DeleteRecordsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS), rng.randint(0, 2)


# Groups.


def commit(around: Surroundings) -> Ask:
    rng, (topic, index) = around.rng, around.partition
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=rng.choice([0, 2**62]), committed_metadata="hostile"
    )
    request = OffsetCommitRequest(
        group_id=rng.choice(around.groups),
        generation_id_or_member_epoch=rng.choice([1, 2, INT32_MAX]),
        member_id=STRANGER,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return request, rng.randint(2, 9)


def join(around: Surroundings) -> Ask:
    rng = around.rng
    request = JoinGroupRequest(
        group_id=rng.choice(around.groups),
        session_timeout_ms=rng.choice([10_000, -1, INT32_MAX]),
        rebalance_timeout_ms=rng.choice([-1, 1_000, INT32_MAX]),
        member_id=STRANGER,
        protocol_type=rng.choice(["consumer", "", "hostile"]),
        protocols=[JoinGroupRequestProtocol(name="range", metadata=rng.randbytes(rng.randrange(40)))],
    )
    return request, rng.randint(1, 9)


def sync(around: Surroundings) -> Ask:
    rng = around.rng
    generation = rng.choice([-1, 1, 2, INT32_MAX])
    request = SyncGroupRequest(group_id=rng.choice(around.groups), generation_id=generation, member_id=STRANGER)
    return request, rng.randint(0, 4)


def heartbeat(around: Surroundings) -> Ask:
    rng = around.rng
    generation = rng.choice([-1, 1, 2, INT32_MAX])
    request = HeartbeatRequest(group_id=rng.choice(around.groups), generation_id=generation, member_id=STRANGER)
    return request, rng.randint(0, 4)


def leave(around: Surroundings) -> Ask:
    rng = around.rng
    members = [MemberIdentity(member_id=STRANGER, group_instance_id=rng.choice([None, STRANGER]))]
    return LeaveGroupRequest(group_id=rng.choice(around.groups), member_id=STRANGER, members=members), rng.randint(0, 5)


# Transactions.


def end_transaction(around: Surroundings) -> Ask:
    rng, (producer_id, epoch) = around.rng, around.producer()
    request = EndTxnRequest(
        transactional_id=rng.choice(around.transactional_ids),
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=rng.random() < 0.5,
    )
    return request, rng.randint(0, 5)


def add_partitions(around: Surroundings) -> Ask:
    rng, (producer_id, epoch) = around.rng, around.producer()
    topic, index = around.partition
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=rng.choice(around.transactional_ids),
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
    )
    return request, rng.randint(0, 3)


def add_offsets(around: Surroundings) -> Ask:
    rng, (producer_id, epoch) = around.rng, around.producer()
    request = AddOffsetsToTxnRequest(
        transactional_id=rng.choice(around.transactional_ids),
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=rng.choice(around.groups),
    )
    return request, rng.randint(0, 4)


def commit_in_a_transaction(around: Surroundings) -> Ask:
    rng, (producer_id, epoch) = around.rng, around.producer()
    topic, index = around.partition
    partition = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=2**40, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=rng.choice(around.transactional_ids),
        group_id=rng.choice(around.groups),
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=rng.choice([1, INT32_MAX]),
        member_id=STRANGER,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return request, rng.randint(3, 5)


def write_marker(around: Surroundings) -> Ask:
    """Into no partition."""
    rng, (producer_id, epoch) = around.rng, around.producer()
    topics = [WritableTxnMarkerTopic(name=around.partition[0], partition_indexes=[rng.choice(NO_PARTITIONS)])]
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=topics,
        coordinator_epoch=rng.choice([-1, INT32_MAX]),
    )
    return WriteTxnMarkersRequest(markers=[marker]), 1


# Topics.


def create_topic(around: Surroundings) -> Ask:
    rng = around.rng
    name, partitions, replicas = rng.choice(
        [
            ("..", 1, 1),
            ("no topic!", 1, 1),
            ("x" * 300, 1, 1),
            ("hostile", -5, 1),
            ("hostile", 0, 1),
            ("hostile", 1, 99),
        ]
    )
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)]
    return CreateTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS), rng.randint(2, 7)


def create_partitions(around: Surroundings) -> Ask:
    rng = around.rng
    wanted = CreatePartitionsTopic(name=around.partition[0], count=rng.choice([-1, 0, -INT32_MAX]), assignments=None)
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS), rng.randint(0, 3)


def delete_topic(around: Surroundings) -> Ask:
    """By an id that no topic has."""
    topics = [DeleteTopicState(topic_id=around.rng.randbytes(16))]
    return DeleteTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS), 6


OF_RECORDS = (fetch, fetch, fetch_in_a_session, list_offsets, offset_for_leader_epoch, produce, produce, delete_records)
OF_GROUPS = (commit, join, sync, heartbeat, leave)
OF_TRANSACTIONS = (end_transaction, add_partitions, add_offsets, commit_in_a_transaction, write_marker)
OF_TOPICS = (create_topic, create_partitions, delete_topic)
FAMILIES: tuple[tuple[Callable[[Surroundings], Ask], ...], ...] = (
    OF_RECORDS,
    OF_RECORDS,
    OF_GROUPS,
    OF_TRANSACTIONS,
    OF_TOPICS,
)
