"""Consumers that read by the high watermark, from the leader, and ask where partitions end."""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.histories.events import EndSeen, Read
from tests.simulation.cluster.client import FETCH_BY_ID_SINCE, NO_TOPIC_ID, REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.traffic import records_of
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

FETCH_WAIT_MS = 300
LATEST = -1
NO_SESSION = INITIAL_EPOCH = 0
UNKNOWN_EPOCH = -1
MEMBERS = 10

EARLIEST = -2


@dataclass
class Reader:
    """Reads each partition on; sometimes from the beginning again."""

    world: "ClusterWorld"
    rng: random.Random
    name: str
    session: int = 0
    positions: dict[Partition, int] = field(default_factory=dict)
    epochs: dict[Partition, int] = field(default_factory=dict)
    """Of the leaders that have answered where the partition ends."""

    def __post_init__(self) -> None:
        self.client = Client(self.world, self.rng, self.name)
        # By topic name, if the world does not use ids, and from v9 on fenced by leader epochs.
        self.fetch_version = self.rng.randint(9, 12)
        self.list_version = self.rng.randint(4, 10)
        self._maybe_use_topic_ids()

    def _maybe_use_topic_ids(self) -> None:
        if self.world.plan.uses_topic_ids:
            self.fetch_version = self.rng.randint(FETCH_BY_ID_SINCE, 18)

    async def live(self) -> None:
        while not self.world.is_over:
            try:
                await self._attend(self.rng.choice(self.world.partitions))
            except OSError:
                self.client.metadata_is_stale()
                await self.world.sleep_ms(self.rng.randint(20, 500))
            if self.rng.random() < (0.3 if self.world.has_rotten_disk else 0.01):
                self.session += 1
                self.positions.clear()
            await self.world.sleep_ms(self.rng.randint(5, 600))
        self.client.close()

    async def _attend(self, partition: Partition) -> None:
        """A new leader is asked for the end first: it must not be a smaller one than its predecessor's."""
        wire, epoch = await self.client.leader(partition)
        if epoch != self.epochs.get(partition) or self.rng.random() < 0.05:
            await self._ask_for_the_end(partition, wire, epoch)
        else:
            await self._read(partition, wire, epoch)

    async def _read(self, partition: Partition, wire: Wire, epoch: int) -> None:
        offset, size = self.positions.get(partition, 0), self.rng.choice([1, 1 << 20])
        part = FetchPartition(
            partition=partition[1], current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=size
        )
        topic_id = self.client.topic_ids.get(partition[0], NO_TOPIC_ID)
        topic = FetchTopic(topic=partition[0], topic_id=topic_id, partitions=[part])
        request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, topics=[topic])
        session = self.session
        response = await self._fetch(request, wire)
        if not response.responses:
            return
        data = response.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(partition, wire, epoch)
            return
        if error is not ErrorCode.NONE:
            self._refused(partition, offset, error)
            return
        for record in records_of(data.records):
            if record.offset >= offset:
                value = bytes(record.value or b"").decode()
                read = Read(self.world.now_us, self.name, session, *partition, record.offset, value)
                self.world.record(read)
                self.positions[partition] = record.offset + 1
        self.world.judge.counts["records read"] += self.positions.get(partition, 0) - offset
        self.world.judge.counts["fetches by topic id"] += self.fetch_version >= FETCH_BY_ID_SINCE

    async def _fetch(self, request: FetchRequest, wire: Wire) -> Any:
        return await wire.call(request, self.fetch_version, within_ms=FETCH_WAIT_MS + REQUEST_TIMEOUT_MS)

    def _refused(self, partition: Partition, offset: int, error: ErrorCode) -> None:
        self.client.metadata_is_stale()
        self.world.judge_error(error, f"{self.name}: fetch from {partition} at {offset}")

    async def _out_of_range(self, partition: Partition, wire: Wire, epoch: int) -> None:
        found = await self._offset_of(EARLIEST, partition, wire, epoch)
        offset, error = self.positions.get(partition, 0), ErrorCode(found.error_code)
        if error is ErrorCode.NONE and found.offset > offset:
            self._jump_to_the_start(partition, found.offset)
            return
        self.client.metadata_is_stale()
        refused = ErrorCode.OFFSET_OUT_OF_RANGE if error is ErrorCode.NONE else error
        self.world.judge_error(
            refused, f"{self.name}: fetch from {partition} at {offset}, which starts at {found.offset}"
        )

    def _jump_to_the_start(self, partition: Partition, log_start_offset: int) -> None:
        """What was next has been deleted: `auto.offset.reset` is earliest. It is another stretch of reading."""
        self.world.judge.counts["records were deleted before they were read"] += 1
        self.session += 1
        self.positions[partition] = log_start_offset

    async def _offset_of(self, timestamp: int, partition: Partition, wire: Wire, epoch: int) -> Any:
        asked = ListOffsetsPartition(partition_index=partition[1], current_leader_epoch=epoch, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=partition[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
        response = await wire.call(request, self.list_version, within_ms=REQUEST_TIMEOUT_MS)
        return response.topics[0].partitions[0]

    async def _ask_for_the_end(self, partition: Partition, wire: Wire, epoch: int) -> None:
        sent_us = self.world.now_us
        found = await self._offset_of(LATEST, partition, wire, epoch)
        error = ErrorCode(found.error_code)
        if error is ErrorCode.NONE:
            self.epochs[partition] = epoch
            self.world.record(EndSeen(sent_us, self.world.now_us, self.name, *partition, found.offset))
        else:
            self.client.metadata_is_stale()
            self.world.judge_error(error, f"{self.name}: end of {partition}")


@dataclass
class OldReader(Reader):
    """Members of a group who hand partitions on to each other, and know of no leader epochs (KIP-320), as aiokafka's.
    Each has metadata of its own, and most come seldom: by then a leader that they know of may have been deposed. Where
    they hear that the offset is out of range, they begin again at the first record."""

    lost: set[Partition] = field(default_factory=set)
    """Partitions in which it does not know where to go on, until it hears where they begin."""

    def __post_init__(self) -> None:
        self.clients = [Client(self.world, self.rng, self.name, knows_epochs=False) for _ in range(MEMBERS)]
        self.client = self.clients[0]
        # From v11 on followers answer too (KIP-392).
        self.fetch_version = self.rng.choice([4, 7, 10, 11, 11, 11])
        self.list_version = self.rng.randint(1, 3)

    async def live(self) -> None:
        await super().live()
        for client in self.clients:
            client.close()

    async def _attend(self, partition: Partition) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.client = self.clients[0] if self.rng.random() < 0.8 else self.rng.choice(self.clients)
            wire, _ = await self.client.leader(partition)
            if partition in self.lost and partition in self.positions:
                await self._begin_again(partition, wire)
            else:
                self.lost.discard(partition)
                await self._read(partition, wire, UNKNOWN_EPOCH)

    def _refused(self, partition: Partition, offset: int, error: ErrorCode) -> None:
        self.world.judge.counts["readers without epochs sent on"] += 1
        super()._refused(partition, offset, error)

    async def _out_of_range(self, partition: Partition, wire: Wire, epoch: int) -> None:
        self.lost.add(partition)
        self.client.metadata_is_stale()

    async def _begin_again(self, partition: Partition, wire: Wire) -> None:
        """Where records were deleted beyond its position. A leader that comes later need not know of that."""
        found = await self._offset_of(EARLIEST, partition, wire, UNKNOWN_EPOCH)
        error, offset = ErrorCode(found.error_code), self.positions[partition]
        if error is not ErrorCode.NONE:
            self._refused(partition, offset, error)
        elif max(found.offset, self.world.deleted_before(partition)) > offset:
            self.lost.remove(partition)
            self._jump_to_the_start(partition, found.offset)
        else:
            what = f"{self.name}: {partition} was read up to {offset}, and begins again at {found.offset}"
            self.world.judge.violated("answers", what)


@dataclass
class SessionReader(Reader):
    """Reads in fetch sessions (KIP-227), of one partition at a time. A broker with few slots gives it none, or takes
    it away for a follower: then the reader opens another."""

    wire: Wire | None = None
    session_id: int = NO_SESSION
    session_epoch: int = INITIAL_EPOCH
    fetched: Partition | None = None
    """What the session has."""

    async def _fetch(self, request: FetchRequest, wire: Wire) -> Any:
        (topic,) = request.topics
        partition = topic.topic, topic.partitions[0].partition
        if wire is not self.wire or self.rng.random() < 0.02:
            self._forget_session()
        request.session_id, request.session_epoch = self.session_id, self.session_epoch
        if self.session_id != NO_SESSION and self.fetched not in (None, partition):
            name, index = self.fetched  # type: ignore[misc]
            topic_id = self.client.topic_ids.get(name, NO_TOPIC_ID)
            request.forgotten_topics_data = [ForgottenTopic(topic=name, topic_id=topic_id, partitions=[index])]
        self.wire, self.fetched = wire, partition
        try:
            response = await super()._fetch(request, wire)
        except OSError:
            self._forget_session()
            raise
        self._took(ErrorCode(response.error_code), response)
        return response

    def _took(self, error: ErrorCode, response: Any) -> None:
        counts = self.world.judge.counts
        if error is ErrorCode.NONE:
            counts["fetches of a session"] += self.session_id != NO_SESSION
            self.session_epoch = self.session_epoch + 1 if response.session_id else INITIAL_EPOCH
            self.session_id = response.session_id
            return
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND and self.session_id != NO_SESSION:
            counts["sessions taken away"] += 1
        else:
            self.world.judge_error(error, f"{self.name}: fetch in session {self.session_id}, {self.session_epoch}")
        self._forget_session()

    def _forget_session(self) -> None:
        self.session_id, self.session_epoch, self.fetched = NO_SESSION, INITIAL_EPOCH, None


@dataclass
class RackReader(Reader):
    """Reads from the replica to which the leader sends it (KIP-392), until that one refuses, or now and then for no
    reason: then the leader is asked again."""

    rack_id: str = ""
    preferred: dict[Partition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fetch_version = self.rng.randint(11, 12)
        self._maybe_use_topic_ids()

    async def _attend(self, partition: Partition) -> None:
        node_id = self.preferred.get(partition)
        if node_id is None or self.rng.random() < 0.05:
            self.preferred.pop(partition, None)
            await super()._attend(partition)
            return
        try:
            wire = await self.client.broker(node_id)
            await self._read(partition, wire, self.epochs[partition])
        except OSError:
            self.preferred.pop(partition, None)
            raise

    async def _fetch(self, request: FetchRequest, wire: Wire) -> Any:
        request.rack_id = self.rack_id
        (asked,) = request.topics
        response = await super()._fetch(request, wire)
        for topic in response.responses:
            for data in topic.partitions:
                partition = asked.topic, data.partition_index
                self.world.judge.counts["fetches from a follower"] += partition in self.preferred
                if data.preferred_read_replica >= 0:
                    self.preferred[partition] = data.preferred_read_replica
        return response

    def _refused(self, partition: Partition, offset: int, error: ErrorCode) -> None:
        self.preferred.pop(partition, None)
        super()._refused(partition, offset, error)

    async def _out_of_range(self, partition: Partition, wire: Wire, epoch: int) -> None:
        """A follower may not have yet what the leader, or another follower, has given out."""
        if self.preferred.pop(partition, None) is None:
            await super()._out_of_range(partition, wire, epoch)
