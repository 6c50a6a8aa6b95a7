"""A client that looks for offsets by time, as consumers do that begin at some moment, and reads what it is answered."""

import random
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.traffic import records_of
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -3, -4, -5
# Since which version of ListOffsets they can be asked for.
SINCE = {EARLIEST: 4, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


class Searcher:
    def __init__(self, world: "ClusterWorld", rng: random.Random, name: str) -> None:
        self.name = name
        self._world = world
        self._rng = rng
        self._client = Client(world, rng, name)
        self._version = rng.randint(4, 10)
        self._began_ms = world.wall_ms()

    async def live(self) -> None:
        while not self._world.is_over:
            try:
                await self._search(self._rng.choice(self._world.partitions))
            except OSError:
                self._client.metadata_is_stale()
            await self._world.sleep_ms(self._rng.randint(50, 2_000))
        self._client.close()

    async def _search(self, partition: Partition) -> None:
        wire, epoch = await self._client.leader(partition)
        timestamp = self._draw_timestamp()
        asked = ListOffsetsPartition(partition_index=partition[1], current_leader_epoch=epoch, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=partition[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
        response = await wire.call(request, self._version, within_ms=REQUEST_TIMEOUT_MS)
        found = response.topics[0].partitions[0]
        if not self._is_answered(found.error_code, f"search for {timestamp} in {partition}") or found.timestamp < 0:
            return
        self._world.judge.counts["offsets found by time"] += 1
        if found.timestamp < timestamp:
            self._violated(f"search for {timestamp} in {partition} gave {found.timestamp}")
        await self._read(partition, wire, epoch, timestamp, found)

    def _draw_timestamp(self) -> int:
        known = [timestamp for timestamp, since in SINCE.items() if self._version >= since]
        if self._rng.random() < 0.3:
            return self._rng.choice(known)
        return self._rng.randint(self._began_ms, self._world.wall_ms())

    async def _read(self, partition: Partition, wire: Wire, epoch: int, timestamp: int, found: Any) -> None:
        """What was found is there, and nothing before it in its batch should have been found; unless it is deleted."""
        topic, index = partition
        part = FetchPartition(
            partition=index, current_leader_epoch=epoch, fetch_offset=found.offset, partition_max_bytes=1
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[part])])
        response = await wire.call(request, 12, within_ms=REQUEST_TIMEOUT_MS)
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset > found.offset:
            return
        if not self._is_answered(data.error_code, f"fetch of {found.offset} from {partition}"):
            return
        for record in records_of(data.records):
            if record.offset == found.offset and record.timestamp != found.timestamp:
                self._violated(f"{partition} has {record.timestamp} at {found.offset}, found was {found.timestamp}")
            if data.log_start_offset <= record.offset < found.offset and record.timestamp >= timestamp >= 0:
                self._violated(f"{partition}: {record.offset} comes before {found.offset}, found for {timestamp}")

    def _is_answered(self, error_code: int, what: str) -> bool:
        error = ErrorCode(error_code)
        if error is not ErrorCode.NONE:
            self._client.metadata_is_stale()
            self._world.judge_error(error, f"{self.name}: {what}")
        return error is ErrorCode.NONE

    def _violated(self, how: str) -> None:
        self._world.judge.violated("search", how)
