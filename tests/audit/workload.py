"""Clients that do what clients do, at random and by bytes, against one broker: the same seed sends the same requests.

Producers without and with idempotence, which sometimes hang up before they have read their answer and send again;
transactions that commit and abort; readers of both kinds, which sometimes begin again; members of a group that come, go
and commit; and what deletes records: DeleteRecords, compaction, retention, deleted topics.
"""

import random
import select
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ottla.protocol.client import RequestFramer, WireClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import Record, build_batch
from ottla.protocol.schema import Message
from ottla.testing.handle import Kafka
from tests.waiting import wait_for

TOPIC, KEYED = "t", "keyed"
PARTITIONS = 2
VERSIONS = {
    "ProduceRequest": 11,
    "FetchRequest": 12,
    "InitProducerIdRequest": 4,
    "AddPartitionsToTxnRequest": 3,
    "EndTxnRequest": 4,
    "FindCoordinatorRequest": 2,
    "DeleteRecordsRequest": 2,
    "JoinGroupRequest": 5,
    "SyncGroupRequest": 3,
    "LeaveGroupRequest": 4,
    "OffsetCommitRequest": 8,
}
READ_COMMITTED = 1
ANSWERED_WITHIN_S = 10
TRIES = 40
OK_WITHIN_S = 10
TXN = 1


class Client:
    """One connection at a time."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._address = host, int(port)
        self._client_id = client_id
        self._socket: socket.socket | None = None

    def call(self, request: Message) -> Any:
        wire = WireClient(self._client_id)
        self._open().sendall(wire.send(request, VERSIONS[type(request).__name__]))
        return wire.receive(self._receive())

    def call_together(self, *requests: Message) -> list[Any]:
        """They arrive in one piece."""
        wire = WireClient(self._client_id)
        frames = [wire.send(each, VERSIONS[type(each).__name__]) for each in requests]
        self._open().sendall(b"".join(frames))
        return [wire.receive(self._receive()) for _ in requests]

    def send_and_hang_up(self, request: Message) -> None:
        """The broker resets nothing: it is the client that goes, with its answer unread."""
        frame = RequestFramer(type(request), VERSIONS[type(request).__name__], self._client_id).build(request, 1)
        opened = self._open()
        opened.sendall(frame)
        select.select([opened], [], [], ANSWERED_WITHIN_S)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(10)
        return self._socket

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._open().recv(size - len(data))
            assert received, "the broker has closed the connection"
            data += received
        return bytes(data)


def records(values: list[bytes], **fields: Any) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch([Record(number, now_ms, value[:2], value, ()) for number, value in enumerate(values)], **fields)


def produce(topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> ProduceRequest:
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))]
    )
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=[data])


class Workload:
    """`run` does so many steps."""

    def __init__(self, kafka: Kafka, seed: int) -> None:
        self._kafka = kafka
        self._random = random.Random(seed)
        self._made = 0
        self._clients: dict[str, Client] = {}
        self._producers: dict[str, tuple[int, int]] = {}
        self._sequences: dict[tuple[str, int], int] = defaultdict(int)
        self._positions: dict[tuple[str, int], int] = {}
        self._member: tuple[str, int] | None = None
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (8, self._plain),
            (8, self._idempotent),
            (5, self._transaction),
            (6, self._read),
            (6, self._read_committed),
            (5, self._commit),
            (2, self._join),
            (1, self._delete_records),
            (1, self._keyed),
        ]

    def run(self, steps: int) -> None:
        self._kafka.create_topic(TOPIC, PARTITIONS, configs={"index.interval.bytes": 100, "segment.ms": 5})
        self._kafka.create_topic(KEYED, 1, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
        weights = [weight for weight, _ in self._steps]
        for _, step in self._random.choices(self._steps, weights, k=steps):
            step()
        for partition in range(PARTITIONS):
            self._fetch("reader", partition, 0)
            self._fetch("committed", partition, READ_COMMITTED)
        for client in self._clients.values():
            client.close()
        self._kafka.wait(lambda kafka: not kafka._bed.reader.connections(), describe="connections close")

    def _client(self, name: str) -> Client:
        if name not in self._clients:
            self._clients[name] = Client(self._kafka.bootstrap, name)
        return self._clients[name]

    def _values(self) -> list[bytes]:
        self._made += 1
        return [b"%02d/%d" % (self._made % 7, self._made)] * self._random.randint(1, 4)

    def _plain(self) -> None:
        partition = self._random.randrange(PARTITIONS)
        request = produce(TOPIC, partition, records(self._values()))
        client = self._client("plain")
        if self._random.random() < 0.1:
            client.send_and_hang_up(request)
        if self._random.random() < 0.9:
            answered(client.call(produce_again(request)))

    def _idempotent(self) -> None:
        name = self._random.choice(("first", "second"))
        client = self._client(name)
        if name not in self._producers:
            given = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
            self._producers[name] = given.producer_id, given.producer_epoch
        partition = self._random.randrange(PARTITIONS)
        values = self._values()
        request = produce(TOPIC, partition, self._sequenced(name, partition, values))
        self._sequences[name, partition] += len(values)
        if self._random.random() < 0.2:
            client.send_and_hang_up(request)
        answered(client.call(produce_again(request)))
        if self._random.random() < 0.2:
            answered(client.call(produce_again(request)))
        if self._random.random() < 0.1:
            # It follows on nothing, and is refused.
            self._sequences[name, partition] += 9
            answered(client.call(produce(TOPIC, partition, self._sequenced(name, partition, values))))
            self._sequences[name, partition] -= 9
        if self._random.random() < 0.3:
            self._two_at_once(client, name, partition)

    def _two_at_once(self, client: Client, name: str, partition: int) -> None:
        requests: list[Message] = []
        for _ in range(2):
            values = self._values()
            requests.append(produce(TOPIC, partition, self._sequenced(name, partition, values)))
            self._sequences[name, partition] += len(values)
        for response in client.call_together(*requests):
            answered(response)

    def _sequenced(self, name: str, partition: int, values: list[bytes], *, transactional: bool = False) -> bytes:
        producer_id, epoch = self._producers[name]
        return records(
            values,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[name, partition],
            transactional=transactional,
        )

    def _transaction(self) -> None:
        client, name = self._client("txn"), "txn"
        if name not in self._producers:
            self._until_ok(client, FindCoordinatorRequest(key=name, key_type=TXN))
            given = self._until_ok(client, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
            self._producers[name] = given.producer_id, given.producer_epoch
        producer_id, epoch = self._producers[name]
        partition = self._random.randrange(PARTITIONS)
        topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        for _ in range(TRIES):
            result = client.call(added).results_by_topic_v3_and_below[0].results_by_partition[0]
            if result.partition_error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        for _ in range(self._random.randint(1, 3)):
            values = self._values()
            batch = self._sequenced(name, partition, values, transactional=True)
            self._sequences[name, partition] += len(values)
            answered(client.call(produce(TOPIC, partition, batch, name)))
            if self._random.random() < 0.5:
                self._fetch("committed", partition, READ_COMMITTED)
        end = EndTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self._random.random() < 0.5,
        )
        self._until_ok(client, end)

    def _until_ok(self, client: Client, request: Message) -> Any:
        answers: list[Any] = []

        def is_ok() -> bool:
            answers.append(client.call(request))
            return not answers[-1].error_code

        wait_for(is_ok, OK_WITHIN_S, lambda: f"{type(request).__name__}: {ErrorCode(answers[-1].error_code).name}")
        return answers[-1]

    def _read(self) -> None:
        self._fetch("reader", self._random.randrange(PARTITIONS), 0)

    def _read_committed(self) -> None:
        self._fetch("committed", self._random.randrange(PARTITIONS), READ_COMMITTED)

    def _fetch(self, name: str, partition: int, isolation: int) -> None:
        position = self._positions.get((name, partition), 0)
        if self._random.random() < 0.1:
            position = 0
        size_max = self._random.choice((150, 2000))
        asked = FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=size_max)
        topic = FetchTopic(topic=TOPIC, partitions=[asked])
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=2000, isolation_level=isolation, session_epoch=-1, topics=[topic]
        )
        answer = self._client(name).call(request).responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = self._kafka.topic(TOPIC).partitions[partition].log_start_offset
            self._positions[name, partition] = start
            return
        for _, header in iterate_batches(memoryview(bytes(answer.records or b""))):
            position = header.next_offset
        self._positions[name, partition] = position

    def _join(self) -> None:
        """The member that there was leaves, or stays and is waited for no longer."""
        client = self._client("reader")
        if self._member is not None and self._random.random() < 0.7:
            client.call(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=self._member[0])]))
            self._member = None
        self._until_ok(client, FindCoordinatorRequest(key="g", key_type=0))
        member_id = "" if self._member is None else self._member[0]
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        for _ in range(2):
            joined = client.call(
                JoinGroupRequest(
                    group_id="g",
                    member_id=member_id,
                    protocol_type="other",
                    protocols=protocols,
                    session_timeout_ms=30_000,
                    rebalance_timeout_ms=30_000,
                )
            )
            member_id = joined.member_id
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        old, self._member = self._member, (member_id, joined.generation_id)
        assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"x")]
        client.call(
            SyncGroupRequest(
                group_id="g", generation_id=joined.generation_id, member_id=member_id, assignments=assignments
            )
        )
        if old is not None:
            self._commit_as(member_id, old[1])

    def _commit(self) -> None:
        if self._member is not None:
            self._commit_as(*self._member)

    def _commit_as(self, member_id: str, generation: int) -> None:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=self._positions.get(("reader", index), 0)
            )
            for index in range(PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        self._client("reader").call(request)

    def _delete_records(self) -> None:
        partition = self._random.randrange(PARTITIONS)
        view = self._kafka.topic(TOPIC).partitions[partition]
        before = (view.log_start_offset + view.last_stable_offset) // 2
        asked = DeleteRecordsPartition(partition_index=partition, offset=before)
        topics = [DeleteRecordsTopic(name=TOPIC, partitions=[asked])]
        self._client("tool").call(DeleteRecordsRequest(topics=topics, timeout_ms=5000))

    def _keyed(self) -> None:
        answered(self._client("plain").call(produce(KEYED, 0, records(self._values()))))


def produce_again(request: ProduceRequest) -> ProduceRequest:
    """The same bytes: what has been sent may have been changed in place."""
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    assert data.records is not None
    return produce(topic.name, data.index, bytes(data.records), request.transactional_id)


def answered(response: Any) -> None:
    """Whatever it was: seeded bugs refuse what should be taken."""
    assert response.responses
