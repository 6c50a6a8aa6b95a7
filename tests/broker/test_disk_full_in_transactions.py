"""A disk that is full at one append of a transaction after the other: what was refused is done again, nothing hangs."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import offset_fetch, txn_offset_commit
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.test_transactional_produce import REGISTER, codes, in_transaction
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.virtual_cluster import Cluster, Node
from tests.simulation.judge import Judge
from tests.simulation.wire import Wire, connect

NONE = ErrorCode.NONE
SMALL = {
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
}
APPENDS = 9
"""Of a transaction: its id, two participants, records, offsets, the decision, two markers, the completion."""
TRIES = 100


async def asked(cluster: Cluster, node: Node, request: Any, version: int) -> Any:
    wire = await connect(cluster.network, Judge(cluster.trace), (node.host, 9092), "client", Wire)
    try:
        return await wire.call(request, version, within_ms=10_000)
    finally:
        wire.close()


async def again(request: Callable[[], Awaitable[ErrorCode]]) -> None:
    """Until it is not refused."""
    refusals = []
    while code := await request():
        refusals.append(code)
        assert len(refusals) < TRIES, refusals[-3:]
        await asyncio.sleep(0.1)


class Story:
    """A record and an offset in one transaction; each request again until it is not refused."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.ask = lambda _node, request, version: asked(cluster, node, request, version)
        self.producer = TransactionalProducer({node.node_id: node}, ask=self.ask)
        self.node = node

    async def run(self, *, commit: bool) -> None:
        await again(self.producer.initialize)
        await again(self._produce)
        await again(self._commit_offset)
        await again(lambda: self.producer.end(commit=commit, version=5))

    async def find_group(self) -> ErrorCode:
        found = await self.ask(self.node, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
        return ErrorCode(found.coordinators[0].error_code)

    async def _produce(self) -> ErrorCode:
        request = in_transaction(0, producer=self.producer.producer_id, epoch=self.producer.producer_epoch)
        (code,) = codes(await self.ask(self.node, request, REGISTER))
        return code

    async def _commit_offset(self) -> ErrorCode:
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        response = await self.ask(self.node, request, 5)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def offset(self) -> int:
        topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        request = offset_fetch.OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
        partition = (await self.ask(self.node, request, 7)).topics[0].partitions[0]
        assert partition.error_code == NONE
        return partition.committed_offset


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("at", range(APPENDS))
def test_transaction_ends_though_an_append_finds_no_space(at: int, commit: bool) -> None:
    cluster = Cluster()

    async def run() -> None:
        (node,) = await cluster.started(0, **SMALL)
        await cluster.create(node, "t", 1, 1)
        story = Story(cluster, node)
        # The topics of both coordinators are there, and have their leaders.
        await again(story.producer.initialize)
        await again(story.find_group)
        node.disk.fail("writev", OSError(errno.ENOSPC, "no space left on device"), after=at)

        await story.run(commit=commit)
        partition = node.broker.replicas.partition("t", 0)
        await cluster.until(lambda: partition.last_stable_offset == partition.log.log_end_offset == 2)
        assert await story.offset() == (1 if commit else -1)
        assert (await story.producer.described()).transaction_state == f"Complete{'Commit' if commit else 'Abort'}"
        assert node.disk._failures == {"writev": []}
        await cluster.stop(node)

    try:
        cluster.run(run())
    finally:
        cluster.loop.close()


def known_epoch(node: Node) -> int | None:
    (shard,) = node.broker.parts.transaction_loader.loaded_shards() or [None]
    entry = None if shard is None else shard.entries.get("tx")
    return None if entry is None else entry.metadata.producer_epoch


def test_coordinator_knows_what_a_log_has_whose_sync_failed() -> None:
    """The record was refused, and a follower may have copied it: where it is committed, it counts."""
    cluster = Cluster()

    async def run() -> None:
        (node,) = await cluster.started(0, **SMALL, log_flush_interval_messages=1)
        story = Story(cluster, node)
        await again(story.producer.initialize)
        before = (await story.producer.described()).producer_epoch
        node.disk.fail("fsync", OSError(errno.EIO, "input/output error"))

        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        refused = (await story.ask(node, request, 5)).error_code

        assert refused == ErrorCode.NOT_COORDINATOR
        await cluster.until(lambda: known_epoch(node) == before + 1)
        # What is not committed is not decided: until then nothing is answered.
        assert (await story.ask(node, request, 5)).error_code != NONE
        await cluster.stop(node)

    try:
        cluster.run(run())
    finally:
        cluster.loop.close()
