"""A topic that is deleted and made again under its name, and who asks for it by its ids.

Every record says with which id its topic was made: it is written by that id (Produce v13), and has to be read by no
other (Fetch v13), however often the topic of that name has been another one.
"""

import random
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.cluster.client import (
    FETCH_BY_ID_SINCE,
    NO_TOPIC_ID,
    PASSING,
    PRODUCE_BY_ID_SINCE,
    REQUEST_TIMEOUT_MS,
    Client,
    Partition,
)
from tests.simulation.cluster.producing import batch_of
from tests.simulation.traffic import records_of
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

SHORT_LIVED, PARTITIONS = "gamma", 2
DELETE_BY_ID_SINCE = 6
FETCH_WAIT_MS = 200
LONGEST_LIFE_MS = 3_000
OLD_IDS_MAX = 5
UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
UNTIMELY = {
    ErrorCode.NONE,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    *UNKNOWN,
    *PASSING,
}


class TopicChurn:
    """Of an operator: makes the topic, writes to it, and deletes it by its id, or by its name where that is unknown."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._rng = world.make_rng("topic churn")
        self._count = 0

    async def once(self) -> None:
        client = Client(self._world, self._rng, "churn", [SHORT_LIVED])
        topic_id = await self._create(client)
        for _ in range(self._rng.randint(0, 8)):
            await self._write(client, topic_id)
        await self._world.sleep_ms(self._rng.randint(0, LONGEST_LIFE_MS))
        named = DeleteTopicState(name=SHORT_LIVED) if topic_id == NO_TOPIC_ID else DeleteTopicState(topic_id=topic_id)
        request = DeleteTopicsRequest(topics=[named], timeout_ms=REQUEST_TIMEOUT_MS)
        response = await client.ask(request, DELETE_BY_ID_SINCE)
        if response is not None:
            self._judge("delete topic", response.responses[0].error_code)
        client.close()

    async def _create(self, client: Client) -> bytes:
        """The id of the topic; NO_TOPIC_ID where the answer has none."""
        topic = CreatableTopic(name=SHORT_LIVED, num_partitions=PARTITIONS, replication_factor=self._rng.choice([2, 3]))
        response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS), 7)
        if response is None:
            return NO_TOPIC_ID
        self._judge("create topic", response.topics[0].error_code)
        return bytes(response.topics[0].topic_id)

    async def _write(self, client: Client, topic_id: bytes) -> None:
        partition: Partition = (SHORT_LIVED, self._rng.randrange(PARTITIONS))
        self._count += 1
        records = batch_of([f"{topic_id.hex()} {self._count}"], self._world.wall_ms())
        data = [PartitionProduceData(index=partition[1], records=records)]
        topics = [TopicProduceData(topic_id=topic_id, partition_data=data)]
        request = ProduceRequest(acks=1, timeout_ms=REQUEST_TIMEOUT_MS // 2, topic_data=topics)
        try:
            wire, _ = await client.leader(partition)
            response = await wire.call(request, PRODUCE_BY_ID_SINCE, within_ms=REQUEST_TIMEOUT_MS)
        except OSError:
            await self._world.sleep_ms(self._rng.randint(20, 200))
            return
        error = response.responses[0].partition_responses[0].error_code
        if topic_id == NO_TOPIC_ID and error == ErrorCode.NONE:
            self._world.judge.violated("answers", "records of a topic without an id were written")
        self._judge("produce by topic id", error)
        if error:
            client.metadata_is_stale()

    def _judge(self, what: str, code: int) -> None:
        error = ErrorCode(code)
        if error not in UNTIMELY and not self._world.may_refuse(error):
            self._world.judge.violated("answers", f"{what} was answered {error.name}")


class ShortLivedReader:
    """Reads the topic by the id that it has at the moment, and goes on asking for those that it had."""

    def __init__(self, world: "ClusterWorld", rng: random.Random, name: str) -> None:
        self.name = name
        self._world, self._rng = world, rng
        self._client = Client(world, rng, name, [SHORT_LIVED])
        self._version = rng.randint(FETCH_BY_ID_SINCE, 17)
        self._positions: dict[tuple[bytes, int], int] = {}
        self._old_ids: list[bytes] = []

    async def live(self) -> None:
        while not self._world.writing_is_over:
            try:
                await self._attend((SHORT_LIVED, self._rng.randrange(PARTITIONS)))
            except OSError:
                self._client.metadata_is_stale()
            await self._world.sleep_ms(self._rng.randint(5, 300))
        self._client.close()

    async def _attend(self, partition: Partition) -> None:
        if self._old_ids and self._rng.random() < 0.3:
            wire = await self._client.any_broker()
            await self._fetch(wire, self._rng.choice(self._old_ids), partition[1])
            return
        wire, _ = await self._client.leader(partition)
        topic_id = self._client.topic_ids.get(SHORT_LIVED, NO_TOPIC_ID)
        if topic_id not in self._old_ids:
            self._old_ids = [*self._old_ids, topic_id][-OLD_IDS_MAX:]
        await self._fetch(wire, topic_id, partition[1])

    async def _fetch(self, wire: Wire, topic_id: bytes, index: int) -> None:
        offset = self._positions.get((topic_id, index), 0)
        part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=topic_id, partitions=[part])]
        request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, topics=topics)
        response = await wire.call(request, self._version, within_ms=FETCH_WAIT_MS + REQUEST_TIMEOUT_MS)
        if response.responses:
            self._took(topic_id, index, response.responses[0])

    def _took(self, topic_id: bytes, index: int, topic: Any) -> None:
        data, judge = topic.partitions[0], self._world.judge
        if topic.topic_id != topic_id:
            judge.violated(
                "answers", f"{self.name}: {topic_id.hex()} was asked for, {topic.topic_id.hex()} is answered"
            )
        error = ErrorCode(data.error_code)
        if error is not ErrorCode.NONE:
            judge.counts["fetches by the id of a deleted topic"] += error is ErrorCode.UNKNOWN_TOPIC_ID
            self._client.metadata_is_stale()
            if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                self._world.judge_error(error, f"{self.name}: fetch from {topic_id.hex()}-{index}")
            self._positions.pop((topic_id, index), None)
            return
        for record in records_of(data.records):
            value = bytes(record.value or b"").decode()
            judge.counts["records of a short-lived topic read"] += 1
            self._positions[topic_id, index] = record.offset + 1
            if not value.startswith(topic_id.hex()):
                judge.violated("I-5", f"{self.name}: {topic_id.hex()} has the record {value!r} at {record.offset}")
