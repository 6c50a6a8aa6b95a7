"""The way of an ISR change from its leader to the store, and what can come instead of an answer (§14.7)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.runtime import next_step
from ottla.cluster.store import CommitResult, Conflict, Transaction, Unavailable
from ottla.protocol.errors import ErrorCode
from tests.broker.clusters import create_topic, state_of, until
from tests.broker.replicas import ALL, in_sync, produced, replica, three_brokers

Instead = Callable[[Transaction], CommitResult | None]
LAG = {"replica_lag_time_max_ms": 300}


class Commits:
    """What a broker commits; `instead` may answer in the store's place."""

    def __init__(
        self, broker: Broker, patch: pytest.MonkeyPatch, instead: Callable[[Transaction], CommitResult | None]
    ):
        self.sizes: list[int] = []
        commit = broker.metadata.commit

        async def watched(transaction: Transaction) -> CommitResult:
            result = instead(transaction)
            self.sizes.append(len(transaction.changes))
            await next_step()
            return await commit(transaction) if result is None else result

        patch.setattr(broker.metadata, "commit", watched)


async def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three_brokers(tmp_path, **LAG) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        silent = 3

        def instead(transaction: Transaction) -> CommitResult | None:
            nonlocal silent
            silent -= 1
            return Unavailable("no answer") if silent >= 0 else None

        Commits(cluster.brokers[0], monkeypatch, instead)
        cluster.brokers[2].replicas.stop_fetching()

        assert await produced(cluster, b"a") is ErrorCode.NONE
        await in_sync(cluster, 0, 1)
        assert silent < 0


async def test_the_changes_of_one_moment_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one by one where the store refuses them together."""
    async with three_brokers(tmp_path, **LAG) as cluster:
        leader = cluster.brokers[0]
        await create_topic(leader, "t", ALL, ALL, ALL)

        def instead(transaction: Transaction) -> CommitResult | None:
            return Conflict("partitions/t/1") if len(transaction.changes) > 1 else None

        commits = Commits(leader, monkeypatch, instead)
        cluster.brokers[2].replicas.stop_fetching()
        for partition in leader.replicas.of_topic("t"):
            partition.leadership.followers[2].fall_behind()
            partition.leadership.followers[2].log_end_offset = -1
        await until(lambda: {state_of(leader, "t", index).isr for index in range(3)} == {(0, 1)})

        assert commits.sizes == [3, 1, 1, 1]


async def test_refused_isr_expansion_is_dropped_and_requested_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§14.7.4: INELIGIBLE_REPLICA."""
    async with three_brokers(tmp_path, **LAG) as cluster:
        leader = cluster.brokers[0]
        await create_topic(leader, "t", ALL)
        await cluster.kill_broker(2)
        await in_sync(cluster, 0, 1)
        assert await produced(cluster, b"a") is ErrorCode.NONE

        # The leader believes in a replica that the cluster does not know any more.
        partition = replica(leader)
        partition.leadership.followers[2].log_end_offset = 0
        with monkeypatch.context() as patch:
            patch.setattr(type(partition._rules.registrations), "may_join_isr", lambda *_: True)
            change = partition.leadership.maybe_expand(2, -1, -1)
        assert change is not None
        leader.replicas._alter_partition.submit(partition, change)
        await until(lambda: partition.leadership.isr_state.change is None)

        await cluster.start_broker(2)
        await in_sync(cluster, *ALL)
