"""A consumer of committed records: what it sees of the transactions in `payments`, and of their offsets."""

import random
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.batch import iterate_batches
from tests.simulation.cluster.client import PASSING, REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.cluster.transacting import AGAIN, GROUP, TOPIC, Coordinators, group_of
from tests.simulation.commits import fetch_request, read_offsets
from tests.storage.transactional import visible

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

FETCH_WAIT_MS = 300
READ_COMMITTED = 1
OFFSET_FETCH_VERSION = 9


class CommittedReader:
    """Reads on, partition by partition; sometimes from the beginning again."""

    def __init__(self, world: "ClusterWorld", rng: random.Random, name: str, *, is_auditor: bool = False) -> None:
        """What an auditor sees is what is left in the end."""
        self.name, self._is_auditor = name, is_auditor
        self.positions: dict[Partition, int] = {}
        self._world, self._rng, self._book = world, rng, world.book
        self._client = Client(world, rng, name, [TOPIC])
        self._coordinators = Coordinators(world, rng, self._client)
        self._version = rng.randint(9, 12)
        self._stable: dict[tuple[Partition, int], int] = {}

    async def live(self) -> None:
        while not self._world.is_over:
            try:
                if self._rng.random() < 0.1:
                    await self.read_offset(self._rng.choice(sorted(self._book.lines)))
                else:
                    await self.read(self._rng.choice(self._book.partitions))
            except OSError:
                self._client.metadata_is_stale()
                await self._world.sleep_ms(self._rng.randint(20, 500))
            if self._rng.random() < 0.01:
                self.positions.clear()
            await self._world.sleep_ms(self._rng.randint(5, 600))
        self.close()

    def close(self) -> None:
        self._coordinators.close()
        self._client.close()

    async def read(self, partition: Partition) -> int:
        """Returns the last stable offset, -1 where the broker cannot say."""
        wire, epoch = await self._client.leader(partition)
        offset, size = self.positions.get(partition, 0), self._rng.choice([1, 1 << 20])
        part = FetchPartition(
            partition=partition[1], current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=size
        )
        topics = [FetchTopic(topic=partition[0], partitions=[part])]
        request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, topics=topics, isolation_level=READ_COMMITTED)
        response = await wire.call(request, self._version, within_ms=FETCH_WAIT_MS + REQUEST_TIMEOUT_MS)
        data = response.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is not ErrorCode.NONE:
            self._client.metadata_is_stale()
            if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                self._world.judge_error(error, f"{self.name}: fetch from {partition} at {offset}")
            else:
                self.positions[partition] = self._world.deleted_before(partition)
            return -1
        self._judge_stable_offset(partition, epoch, data)
        self._took(partition, offset, data)
        return int(data.last_stable_offset)

    def _judge_stable_offset(self, partition: Partition, epoch: int, data: Any) -> None:
        """I-29. Answers come in the order of the questions."""
        stable, before = data.last_stable_offset, self._stable.get((partition, epoch), 0)
        if not before <= stable <= data.high_watermark:
            how = f"{partition} is stable up to {stable} in term {epoch}, after {before}, of {data.high_watermark}"
            self._world.judge.violated("I-29", how)
        self._stable[partition, epoch] = stable

    def _took(self, partition: Partition, offset: int, data: Any) -> None:
        records = memoryview(bytes(data.records or b""))
        if not len(records):
            return
        aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions}
        for at, value in visible(records, aborted):
            if at >= offset:
                at_the_end = self._is_auditor
                self._book.see(self.name, partition, at, (value or b"").decode(), at_the_end=at_the_end)
                self._world.judge.counts["committed records read"] += 1
        self.positions[partition] = max(header.next_offset for _, header in iterate_batches(records))

    async def read_offset(self, transactional_id: str) -> int | None:
        """What its transactions have committed, -1 for nothing; None where the broker cannot say."""
        group_id = group_of(transactional_id)
        wire = await self._coordinators.wire(GROUP, group_id)
        request = fetch_request(group_id, None)
        request.require_stable = True
        response = await wire.call(request, OFFSET_FETCH_VERSION, within_ms=REQUEST_TIMEOUT_MS)
        group = response.groups[0]
        errors = {ErrorCode(partition.error_code) for topic in group.topics for partition in topic.partitions}
        errors |= {ErrorCode(group.error_code)}
        errors.discard(ErrorCode.NONE)
        if errors:
            self._coordinators.forget(GROUP, group_id)
            for error in errors - AGAIN - PASSING - {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
                self._world.judge.violated("answers", f"offset fetch of {group_id} was answered {error.name}")
            return None
        read = read_offsets(group)
        if not read:
            return -1
        (offset,) = (offset for offset, _ in read.values())
        self._book.see_offset(group_id, offset)
        return offset
