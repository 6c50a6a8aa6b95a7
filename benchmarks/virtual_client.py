"""A client on the virtual network that packs Kafka's bytes itself.

It imports no module of the broker: what counts the broker's calls must neither be counted with them nor break when the
broker's modules move. All requests are in versions without tagged fields.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import crc32c

from tests.broker.virtual_cluster import Cluster, Node

T = TypeVar("T")

HOST = "tester"
PORT = 9092
PRODUCE, METADATA, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, CREATE_TOPICS, ELECT_LEADERS = 0, 3, 10, 11, 14, 19, 43
VERSIONS = {
    PRODUCE: 7,
    METADATA: 5,
    FIND_COORDINATOR: 2,
    JOIN_GROUP: 5,
    SYNC_GROUP: 3,
    CREATE_TOPICS: 4,
    ELECT_LEADERS: 1,
}
TIMEOUT_MS = 30_000
SESSION_TIMEOUT_MS = 30_000


class Reader:
    """Takes the fields of an answer off its bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        self._position += size
        return self._data[self._position - size : self._position]

    def int8(self) -> int:
        return int.from_bytes(self.take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self.take(size).decode()

    def array(self, element: Callable[[], T]) -> list[T]:
        return [element() for _ in range(self.int32())]


@dataclass(frozen=True)
class Partition:
    leader_id: int
    isr: list[int]


class Client(asyncio.Protocol):
    """One connection; an answer is awaited in `receive`, in the order of the requests."""

    def __init__(self) -> None:
        self._received = b""
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._transport: Any = None

    @classmethod
    async def connect(cls, cluster: Cluster, node: Node) -> "Client":
        client = cls()
        client._transport = await cluster.network.connect(lambda: client, node.host, PORT, from_host=HOST)
        return client

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= (
            end := 4 + struct.unpack_from(">i", self._received)[0]
        ):
            self._answers.put_nowait(self._received[8:end])
            self._received = self._received[end:]

    def when_answered(self, action: Callable[[], None]) -> None:
        """Calls `action` once, when the broker writes to this connection for the next time."""
        brokers_end = self._transport.peer
        writelines = brokers_end.writelines

        def written(data: Sequence[Any]) -> None:
            action()
            del brokers_end.writelines
            writelines(data)

        brokers_end.writelines = written

    def send(self, api_key: int, body: bytes) -> None:
        frame = struct.pack(">hhi", api_key, VERSIONS[api_key], 1) + string("hops") + body
        self._transport.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self) -> Reader:
        return Reader(await self._answers.get())

    async def call(self, api_key: int, body: bytes) -> Reader:
        self.send(api_key, body)
        return await self.receive()

    async def create_topic(self, name: str, replicas: list[int]) -> None:
        """With one partition, which the first of `replicas` is to lead."""
        assignment = array([struct.pack(">i", 0) + array([struct.pack(">i", each) for each in replicas])])
        topic = string(name) + struct.pack(">ih", -1, -1) + assignment + array([])
        answer = await self.call(CREATE_TOPICS, array([topic]) + struct.pack(">ib", TIMEOUT_MS, 0))
        answer.int32()
        codes = answer.array(lambda: (answer.string(), answer.int16(), answer.string()))
        assert [code for _, code, _ in codes] == [0], codes

    async def metadata(self, *topics: str) -> tuple[int, dict[str, Partition]]:
        """The controller's id, and what is known of each topic's only partition."""
        answer = await self.call(METADATA, array([string(name) for name in topics]) + b"\0")
        answer.int32()
        answer.array(lambda: (answer.int32(), answer.string(), answer.int32(), answer.string()))
        answer.string()
        controller_id = answer.int32()
        return controller_id, dict(answer.array(lambda: self._topic(answer)))

    def _topic(self, answer: Reader) -> tuple[str, Partition]:
        answer.int16()
        name = answer.string() or ""
        answer.int8()
        (partition,) = answer.array(lambda: self._partition(answer)) or [Partition(-1, [])]
        return name, partition

    def _partition(self, answer: Reader) -> Partition:
        answer.take(6)
        leader_id = answer.int32()
        _replicas, isr, _offline = (answer.array(answer.int32) for _ in range(3))
        return Partition(leader_id, isr)


def produce_body(topic: str, value: bytes, acks: int = -1) -> bytes:
    """One record for partition 0."""
    records = _batch(value)
    partition = struct.pack(">ii", 0, len(records)) + records
    return struct.pack(">hhi", -1, acks, TIMEOUT_MS) + array([string(topic) + array([partition])])


def produced_code(answer: Reader) -> int:
    ((code,),) = answer.array(lambda: _produced_codes(answer))
    return code


def _produced_codes(answer: Reader) -> list[int]:
    answer.string()
    return [code for _, code, _ in answer.array(lambda: (answer.int32(), answer.int16(), answer.take(24)))]


def _batch(value: bytes) -> bytes:
    """A batch of one record without key, in format 2. The length of `value` fits into one byte of a varint."""
    record = b"\0\0\0\x01" + bytes([2 * len(value)]) + value + b"\0"
    records = bytes([2 * len(record)]) + record
    checked = struct.pack(">hiqqqhii", 0, 0, 1_000, 1_000, -1, -1, -1, 1) + records
    return struct.pack(">qiib", 0, len(checked) + 9, -1, 2) + struct.pack(">I", crc32c.crc32c(checked)) + checked


def join_body(group_id: str, member_id: str) -> bytes:
    protocols = array([string("range") + data(b"subscription")])
    timeouts = struct.pack(">ii", SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS)
    return string(group_id) + timeouts + string(member_id) + string(None) + string("consumer") + protocols


def joined(answer: Reader) -> tuple[int, int, str, str]:
    """Error code, generation, leader and own member id."""
    answer.int32()
    code, generation = answer.int16(), answer.int32()
    answer.string()
    return code, generation, answer.string() or "", answer.string() or ""


def sync_body(group_id: str, generation: int, member_id: str, assigned: Sequence[str]) -> bytes:
    assignments = array([string(each) + data(b"assignment") for each in assigned])
    return string(group_id) + struct.pack(">i", generation) + string(member_id) + string(None) + assignments


def elect_preferred_body(topic: str) -> bytes:
    topics = array([string(topic) + array([struct.pack(">i", 0)])])
    return struct.pack(">b", 0) + topics + struct.pack(">i", TIMEOUT_MS)


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def data(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def array(elements: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(elements)) + b"".join(elements)
