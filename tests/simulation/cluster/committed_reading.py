"""A consumer of committed records: what it sees of the transactions in `payments`, and of their offsets."""

import random
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.batch import iterate_batches
from tests.simulation.cluster.client import (
    FETCH_BY_ID_SINCE,
    NO_TOPIC_ID,
    PASSING,
    REQUEST_TIMEOUT_MS,
    Client,
    Partition,
)
from tests.simulation.cluster.plan import NODE_IDS
from tests.simulation.cluster.transacting import AGAIN, GROUP, TOPIC, Coordinators, group_of
from tests.simulation.commits import fetch_request, read_offsets
from tests.simulation.transaction_book import Transaction
from tests.storage.transactional import visible

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

FETCH_WAIT_MS = 300
READ_COMMITTED = 1
OFFSET_FETCH_VERSION = 9


class CommittedReader:
    """Reads on, partition by partition; sometimes from the beginning again."""

    def __init__(
        self,
        world: "ClusterWorld",
        rng: random.Random,
        name: str,
        *,
        is_auditor: bool = False,
        reads_from_followers: bool = False,
    ) -> None:
        """What an auditor sees is what is left in the end."""
        self._reads_from_followers = reads_from_followers
        self.name, self._is_auditor = name, is_auditor
        self.positions: dict[Partition, int] = {}
        self._world, self._rng, self._book = world, rng, world.book
        self._client = Client(world, rng, name, [TOPIC])
        self._coordinators = Coordinators(world, rng, self._client)
        # From v11 on a follower serves consumers.
        self._version = rng.randint(11 if reads_from_followers else 9, 12)
        if world.plan.uses_topic_ids:
            self._version = rng.randint(FETCH_BY_ID_SINCE, 18)
        self._stable: dict[tuple[Partition, int], int] = {}

    async def live(self) -> None:
        while not self._world.is_over:
            try:
                pending = [name for name in sorted(self._book.lines) if self._pending_offsets(name)]
                if self._rng.random() < (0.5 if pending else 0.1):
                    await self.read_offset(self._rng.choice(pending or sorted(self._book.lines)))
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
        is_leader = not self._reads_from_followers or self._rng.random() < 0.3
        if not is_leader:
            wire = await self._client.broker(self._rng.choice(NODE_IDS))
        offset, size = self.positions.get(partition, 0), self._rng.choice([1, 1 << 20])
        part = FetchPartition(
            partition=partition[1], current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=size
        )
        topic_id = self._client.topic_ids.get(partition[0], NO_TOPIC_ID)
        topics = [FetchTopic(topic=partition[0], topic_id=topic_id, partitions=[part])]
        request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, topics=topics, isolation_level=READ_COMMITTED)
        response = await wire.call(request, self._version, within_ms=FETCH_WAIT_MS + REQUEST_TIMEOUT_MS)
        data = response.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is not ErrorCode.NONE:
            self._client.metadata_is_stale()
            if not is_leader and error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # It has not come so far; the leader says more.
                return -1
            if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                self._world.judge_error(error, f"{self.name}: fetch from {partition} at {offset}")
            else:
                self.positions[partition] = self._world.deleted_before(partition)
            return -1
        self._judge_stable_offset(partition, epoch if is_leader else None, data)
        self._took(partition, offset, data)
        return int(data.last_stable_offset)

    def _judge_stable_offset(self, partition: Partition, epoch: int | None, data: Any) -> None:
        """I-29. Answers come in the order of the questions; those of followers, which have no term of their own, may
        fall."""
        stable = data.last_stable_offset
        before = 0 if epoch is None else self._stable.get((partition, epoch), 0)
        if not before <= stable <= data.high_watermark:
            how = f"{partition} is stable up to {stable} in term {epoch}, after {before}, of {data.high_watermark}"
            self._world.judge.violated("I-29", how)
        if epoch is None:
            self._world.judge.counts["committed records asked of followers"] += 1
        else:
            self._stable[partition, epoch] = stable

    def _took(self, partition: Partition, offset: int, data: Any) -> None:
        records = memoryview(bytes(data.records or b""))
        if not len(records):
            return
        aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions}
        seen: set[str] = set()
        for at, value in visible(records, aborted):
            if at >= offset:
                seen.add((value or b"").decode())
                self._book.see(self.name, partition, at, (value or b"").decode(), at_the_end=self._is_auditor)
        self._world.judge.counts["committed records read"] += len(seen)
        passed = self.positions[partition] = max(header.next_offset for _, header in iterate_batches(records))
        self._book.passed(self.name, partition, range(offset, passed), seen)

    async def read_offset(self, transactional_id: str) -> int | None:
        """What its transactions have committed, -1 for nothing; None where the broker cannot say."""
        group_id = group_of(transactional_id)
        wire = await self._coordinators.wire(GROUP, group_id)
        request = fetch_request(group_id, None)
        request.require_stable = True
        pending = self._pending_offsets(transactional_id)
        authority = self._world.authority_of(group_id, wire)
        response = await wire.call(request, OFFSET_FETCH_VERSION, within_ms=REQUEST_TIMEOUT_MS)
        group = response.groups[0]
        errors = {ErrorCode(partition.error_code) for topic in group.topics for partition in topic.partitions}
        errors |= {ErrorCode(group.error_code)}
        errors.discard(ErrorCode.NONE)
        if errors:
            self._coordinators.forget(GROUP, group_id)
            self._world.judge.counts["offsets found unstable"] += ErrorCode.UNSTABLE_OFFSET_COMMIT in errors
            for error in errors - AGAIN - PASSING - {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
                self._world.judge.violated("answers", f"offset fetch of {group_id} was answered {error.name}")
            return None
        read = read_offsets(group)
        if not read:
            return -1
        still_pending = self._pending_offsets(transactional_id)
        # A coordinator that was replaced and does not know it yet shows what it had.
        leads = authority is not None and authority == self._world.authority_of(group_id, wire)
        for transaction in pending:
            # It was open all the time, so the offset that the answer shows precedes its own.
            if leads and transaction in still_pending:
                self._world.judge.violated("I-24", f"{read} of {group_id} is read as stable, {transaction} is open")
        (offset,) = (offset for offset, _ in read.values())
        if not self._book.lines[transactional_id].copies:
            self._book.see_offset(group_id, offset)
        return offset

    def _pending_offsets(self, transactional_id: str) -> list[Transaction]:
        """Of transactions that are open for certain."""
        is_open = self._world.inspector.decisions.is_open
        return [each for each in self._book.pending_offsets(transactional_id) if is_open(transactional_id, each.pair)]
