"""A client that costs next to nothing, so that what is measured is the broker: ready-made frames, blocking sockets."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence

from benchmarks.processes import Server
from ottla.protocol.client import RequestFramer, WireClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.protocol.records.record import Record, build_batch
from ottla.protocol.schema import Message

CLIENT_ID = "bench"
VERSIONS = {
    "Produce": 9,
    "Fetch": 12,
    "Heartbeat": 4,
    "JoinGroup": 5,
    "SyncGroup": 3,
    "LeaveGroup": 4,
    "OffsetCommit": 8,
    "CreateTopics": 5,
    "FindCoordinator": 2,
    "Metadata": 9,
    "ListOffsets": 7,
    "OffsetFetch": 8,
}


class RawClient:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = memoryview(b"")

    def close(self) -> None:
        self.socket.close()

    def call(self, request: Message, response: type[Message], version: int) -> Message:
        """One request and its decoded answer."""
        wire = WireClient(CLIENT_ID)
        self.socket.sendall(wire.send(request, version))
        answer = wire.receive(bytes(self.receive()))
        assert isinstance(answer, response)
        return answer

    def receive(self) -> memoryview:
        """The next answer from its correlation id on; valid until the next call."""
        size = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))[0]
        view = self._room(size)
        count = 0
        while count < size:
            count += self.socket.recv_into(view[count:])
        return view

    def _room(self, size: int) -> memoryview:
        """For an answer of so many bytes. A thousand clients have one each: it is no larger than their answers."""
        if size > len(self._answer):
            self._answer = memoryview(bytearray(2 * size))
        return self._answer[:size]

    def pipeline(self, frame: bytes, count: int, window: int) -> None:
        """Sends the frame `count` times with `window` of them unanswered; answers are counted by their sizes."""
        self.socket.sendall(frame * min(window, count))
        sent, answered = min(window, count), 0
        while answered < count:
            arrived = self._answers_received()
            answered += arrived
            more = min(arrived, count - sent)
            if more:
                self.socket.sendall(frame * more)
                sent += more

    def latencies_us(self, frame: bytes, count: int, per_second: int) -> list[float]:
        """Of frames sent at a steady rate. A client that slept in between would measure the scheduler."""
        latencies = []
        due = time.perf_counter()
        for _ in range(count):
            while time.perf_counter() < due:
                pass
            sent = time.perf_counter()
            self.pipeline(frame, 1, 1)
            latencies.append((time.perf_counter() - sent) * 1e6)
            due += 1 / per_second
        return latencies

    def _answers_received(self) -> int:
        """Blocks for at least one whole answer; answers here are small and of equal size."""
        data = self.socket.recv(1 << 16)
        size = struct.unpack_from(">i", data)[0] + 4 if len(data) >= 4 else 4
        while len(data) < 4 or len(data) % (size := struct.unpack_from(">i", data)[0] + 4):
            data += self.socket.recv(1 << 16)
        return len(data) // size


def when_serving(port: int) -> RawClient:
    """A client of a broker that may still be starting."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return RawClient(port)
        time.sleep(0.005)


def create_topic(
    client: RawClient, name: str, partitions: int = 1, *, replication_factor: int = 1, replicas: Sequence[int] = ()
) -> None:
    """`replicas`: the brokers of its only partition, the first of them its leader; otherwise the cluster chooses."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
    if replicas:
        topic.num_partitions = topic.replication_factor = -1
        topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    response = client.call(request, CreateTopicsResponse, VERSIONS["CreateTopics"])
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == 0, response.topics[0].error_message


def replicated_topic(admin: RawClient, topic: str, brokers: int) -> RawClient:
    """A client of the leader of the new topic's partition, which all brokers have and all are in sync with."""
    ports: dict[int, int] = {}
    while len(ports) < brokers:
        ports, _ = described(admin)
    first, *others = sorted(ports)
    create_topic(admin, topic, replicas=[first, *others])
    leader = RawClient(ports[first])
    while not produced(leader, topic, batch(1, 100)):
        time.sleep(0.04)
    return leader


def processor_us(server: Server, client: RawClient, frame: bytes, count: int, window: int) -> Callable[[], float]:
    """Measures what a request costs the server, of `count` with `window` of them on their way at a time."""

    def measure() -> float:
        before = server.cpu_seconds()
        client.pipeline(frame, count, window)
        return (server.cpu_seconds() - before) / count * 1e6

    return measure


def described(client: RawClient, topic: str | None = None) -> tuple[dict[int, int], list[MetadataResponsePartition]]:
    """The ports of the brokers by node id, and the partitions of the topic, if one is named."""
    topics = [] if topic is None else [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = client.call(request, MetadataResponse, VERSIONS["Metadata"])
    assert isinstance(response, MetadataResponse)
    partitions = response.topics[0].partitions if response.topics else []
    return {broker.node_id: broker.port for broker in response.brokers}, partitions


def batch(records: int, value_bytes: int) -> bytes:
    return build_batch([Record(i, 1_700_000_000_000, None, bytes(value_bytes), ()) for i in range(records)])


def batch_of_size(size: int, value_bytes: int) -> bytes:
    """A batch of as many records as fit in `size` bytes."""
    per_record = len(batch(2, value_bytes)) - len(batch(1, value_bytes))
    return batch((size - BATCH_HEADER_SIZE) // (per_record + 2), value_bytes)


def produce_frame(topic: str, records: bytes, acks: int = -1) -> bytes:
    return _frame(_produce_request(topic, records, acks), "Produce")


def produced(client: RawClient, topic: str, records: bytes) -> bool:
    """Whether the broker takes the records; until it knows of its partition it does not."""
    response = client.call(_produce_request(topic, records, -1), ProduceResponse, VERSIONS["Produce"])
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def fetch_frame(topic: str, offset: int, max_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=topics)
    return _frame(request, "Fetch")


def heartbeat_frame(group: str, generation: int, member_id: str) -> bytes:
    return _frame(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id), "Heartbeat")


def join_request(
    group: str, member_id: str = "", metadata: bytes = b"", *, session_timeout_ms: int = 30_000
) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    timeouts = {"session_timeout_ms": session_timeout_ms, "rebalance_timeout_ms": 60_000}
    return JoinGroupRequest(
        group_id=group, member_id=member_id, protocol_type="consumer", protocols=protocols, **timeouts
    )


def joined_member(client: RawClient, group: str, *, session_timeout_ms: int = 30_000) -> tuple[str, int]:
    """(member id, generation) of the only member of a stable group."""
    find_coordinator(client, group)
    request = join_request(group, session_timeout_ms=session_timeout_ms)
    first = client.call(request, JoinGroupResponse, VERSIONS["JoinGroup"])
    assert isinstance(first, JoinGroupResponse)
    request.member_id = first.member_id
    return first.member_id, rebalanced(client, request)


def rebalanced(client: RawClient, join: JoinGroupRequest) -> int:
    """The generation of the group after its only member, which the request names, has joined again and is in sync."""
    joined = client.call(join, JoinGroupResponse, VERSIONS["JoinGroup"])
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == 0
    sync = sync_request(join.group_id, joined.generation_id, join.member_id, [join.member_id])
    synced = client.call(sync, SyncGroupResponse, VERSIONS["SyncGroup"])
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == 0
    return joined.generation_id


def leave(client: RawClient, group: str, *member_ids: str) -> None:
    members = [MemberIdentity(member_id=each) for each in member_ids]
    request = LeaveGroupRequest(group_id=group, members=members)
    response = client.call(request, LeaveGroupResponse, VERSIONS["LeaveGroup"])
    assert isinstance(response, LeaveGroupResponse)
    assert response.error_code == 0


def commit_frame(group: str, generation: int, member_id: str, topic: str, offset: int) -> bytes:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
    )
    return _frame(request, "OffsetCommit")


def offset_fetch_frame(group: str, topic: str) -> bytes:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    return _frame(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)]), "OffsetFetch")


def list_offsets_frame(topic: str) -> bytes:
    """Asks for the end of its partition 0."""
    topics = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    return _frame(ListOffsetsRequest(replica_id=-1, topics=topics), "ListOffsets")


def metadata_frame(topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return _frame(request, "Metadata")


def find_coordinator_frame(group: str) -> bytes:
    return _frame(FindCoordinatorRequest(key=group), "FindCoordinator")


def find_coordinator(client: RawClient, key: str, key_type: int = 0) -> None:
    """The first one makes the broker create and load `__consumer_offsets`, with key type 1 `__transaction_state`; asks
    until that is done."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    while True:
        found = client.call(request, FindCoordinatorResponse, VERSIONS["FindCoordinator"])
        assert isinstance(found, FindCoordinatorResponse)
        if found.error_code == 0:
            return


def sync_request(group: str, generation: int, member_id: str, members: Sequence[str]) -> SyncGroupRequest:
    """The leader names all members; a follower none."""
    assignments = [SyncGroupRequestAssignment(member_id=member, assignment=b"\0" * 12) for member in members]
    return SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id, assignments=assignments)


def _produce_request(topic: str, records: bytes, acks: int) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=memoryview(records))
    data = TopicProduceData(name=topic, partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])


def _frame(request: Message, api: str) -> bytes:
    return RequestFramer(type(request), VERSIONS[api], CLIENT_ID).build(request, 7)
