"""Groups go with the leadership of their partition of `__consumer_offsets` (R11, G03, G18; §4.4, §4.5)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.coordinators import group_coordinator
from ottla.broker.local_cluster import LocalCluster
from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker import requests
from tests.broker.clusters import LOOK_EVERY_S, WAIT_S, ask, create_topic, state_of, until
from tests.broker.replicas import three_brokers

GROUP = "g"


@asynccontextmanager
async def grouping(tmp_path: Path, **settings: object) -> AsyncIterator[LocalCluster]:
    """A cluster whose only partition of `__consumer_offsets` is on all three brokers, and a topic `orders`."""
    async with three_brokers(tmp_path, offsets_topic_num_partitions=1, **settings) as cluster:
        await create_topic(cluster.brokers[0], "orders", [0, 1, 2])
        await until_found(cluster)
        await until(lambda: len(state_of(cluster.brokers[0], CONSUMER_OFFSETS).isr) == 3)
        yield cluster


async def coordinator_by(broker: Broker) -> tuple[int, int]:
    """What this broker says: (error, node)."""
    response = await ask(broker, FindCoordinatorRequest(key=GROUP), 3)
    return response.error_code, response.node_id


async def until_found(cluster: LocalCluster) -> Broker:
    """The coordinator, when all brokers agree and it has loaded."""
    while True:
        answers = {await coordinator_by(broker) for broker in cluster.brokers.values()}
        (error, node_id), *others = answers
        if not error and not others and node_id in cluster.brokers:
            broker = cluster.brokers[node_id]
            if await beat_error(broker, "unknown", 0) is ErrorCode.UNKNOWN_MEMBER_ID:
                return broker


async def beat_error(broker: Broker, member_id: str, generation: int) -> ErrorCode:
    response = await ask(broker, requests.heartbeat(GROUP, member_id, generation), 4)
    return ErrorCode(response.error_code)


async def join_alone(broker: Broker) -> str:
    """A member that has joined, synced, and is the only one; its id."""
    refused = await ask(broker, requests.join(GROUP), 5)
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await ask(broker, requests.join(GROUP, refused.member_id), 5)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assignment = requests.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all of it")
    synced = await ask(broker, requests.sync(GROUP, joined.member_id, 1, [assignment]), 3)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"all of it")
    return str(joined.member_id)


async def committed(broker: Broker, member_id: str, offset: int) -> ErrorCode:
    response = await ask(broker, requests.commit(GROUP, "orders", 1, member_id, offset=offset), 7)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def offset_at(broker: Broker) -> int:
    """Once the high watermark of a new coordinator has passed what it has loaded; clients ask again until then."""
    async with asyncio.timeout(WAIT_S):
        while True:
            response = await ask(broker, requests.fetch_offsets(GROUP, "orders"), 7)
            if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            await asyncio.sleep(LOOK_EVERY_S)
    assert response.error_code == 0
    return int(response.topics[0].partitions[0].committed_offset)


async def prefer(cluster: LocalCluster, broker: Broker) -> None:
    """Makes the first replica lead again."""
    asked = [TopicPartitions(topic=CONSUMER_OFFSETS, partitions=[0])]
    await ask(broker, ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=5000))


async def test_killed_coordinator_is_replaced_without_lost_offsets(tmp_path: Path) -> None:
    """R11, G03: generation, members, assignment and offsets are kept."""
    async with grouping(tmp_path) as cluster:
        before = await until_found(cluster)
        member_id = await join_alone(before)
        assert await committed(before, member_id, 5) is ErrorCode.NONE

        await cluster.kill_broker(before.node_id)
        after = await until_found(cluster)

        assert after is not before
        assert await beat_error(after, member_id, 1) is ErrorCode.NONE
        assert await offset_at(after) == 5
        assert await committed(after, member_id, 6) is ErrorCode.NONE
        resynced = await ask(after, requests.sync(GROUP, member_id, 1), 3)
        assert bytes(resynced.assignment) == b"all of it"


async def test_who_is_not_the_coordinator_says_so(tmp_path: Path) -> None:
    """G03"""
    async with grouping(tmp_path) as cluster:
        coordinator = await until_found(cluster)
        others = [broker for broker in cluster.brokers.values() if broker is not coordinator]

        for broker in others:
            assert await beat_error(broker, "m", 1) is ErrorCode.NOT_COORDINATOR
            assert await coordinator_by(broker) == (0, coordinator.node_id)


async def test_returning_coordinator_has_commits_made_in_its_absence(tmp_path: Path) -> None:
    """§4.4.1, §4.5: each epoch of a leader loads its groups again, and ends with them."""
    async with grouping(tmp_path) as cluster:
        first = await until_found(cluster)
        member_id = await join_alone(first)
        await cluster.stop_broker(first.node_id)
        second = await until_found(cluster)
        assert await committed(second, member_id, 9) is ErrorCode.NONE

        await cluster.start_broker(first.node_id)
        await until(lambda: len(state_of(second, CONSUMER_OFFSETS).isr) == 3)
        await prefer(cluster, second)
        await until(lambda: cluster.leader_of(CONSUMER_OFFSETS, 0) == state_of(second, CONSUMER_OFFSETS).replicas[0])
        third = await until_found(cluster)

        assert await offset_at(third) == 9
        if third is not second:
            assert await beat_error(second, member_id, 1) is ErrorCode.NOT_COORDINATOR


async def test_moved_coordinator_restarts_every_session(tmp_path: Path) -> None:
    """G18: a member that was silent at the old coordinator has its whole session at the new one."""
    async with grouping(tmp_path, group_min_session_timeout_ms=1) as cluster:
        before = await until_found(cluster)
        member_id = await join_alone(before)
        await cluster.kill_broker(before.node_id)
        after = await until_found(cluster)

        (hosted,) = after.groups.topic
        (timer,) = hosted._timers.values()

        session_timeout_ms = 1_800_000
        assert timer.deadline_ms > after.runtime.clock.now_ms() + session_timeout_ms - 10_000
        assert await beat_error(after, member_id, 1) is ErrorCode.NONE


async def test_what_cannot_be_stored_is_not_promised(tmp_path: Path) -> None:
    """G16, §4.6: too few replicas in sync. The offset that was committed before is the one that holds."""
    async with grouping(tmp_path, offsets_commit_timeout_ms=1000) as cluster:
        coordinator = await until_found(cluster)
        member_id = await join_alone(coordinator)
        assert await committed(coordinator, member_id, 5) is ErrorCode.NONE
        for broker in list(cluster.brokers.values()):
            if broker is not coordinator:
                await cluster.kill_broker(broker.node_id)
        await in_sync_of_offsets(cluster, coordinator.node_id)

        assert await committed(coordinator, member_id, 6) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await offset_at(coordinator) == 5


async def in_sync_of_offsets(cluster: LocalCluster, *expected: int) -> None:
    await until(lambda: all(set(state_of(b, CONSUMER_OFFSETS).isr) == {*expected} for b in cluster.brokers.values()))


async def test_assignment_waits_until_it_is_committed(tmp_path: Path) -> None:
    """The next leader may not know this generation, and make it once more with other assignments."""
    async with grouping(tmp_path) as cluster:
        coordinator = await until_found(cluster)
        member_id = await join_alone(coordinator)
        partition = coordinator.replicas.partition(CONSUMER_OFFSETS, 0)
        began_at, partition.leader_epoch_start = partition.leader_epoch_start, partition.high_watermark + 1

        asked = asyncio.create_task(ask(coordinator, requests.sync(GROUP, member_id, 1), 3))
        assert await beat_error(coordinator, member_id, 1) is ErrorCode.NONE
        assert not asked.done()
        partition.leader_epoch_start = began_at

        assert bytes((await asked).assignment) == b"all of it"


async def test_assignment_that_is_not_committed_for_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "SYNC_TRIES", 2)
    async with grouping(tmp_path) as cluster:
        coordinator = await until_found(cluster)
        member_id = await join_alone(coordinator)
        partition = coordinator.replicas.partition(CONSUMER_OFFSETS, 0)
        partition.leader_epoch_start = partition.high_watermark + 1

        refused = await ask(coordinator, requests.sync(GROUP, member_id, 1), 3)

        assert refused.error_code == ErrorCode.REBALANCE_IN_PROGRESS
