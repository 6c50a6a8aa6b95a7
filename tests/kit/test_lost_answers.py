"""Answers of a coordinator that rules lose or hold up (TK21): the same story in each of a hundred runs."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from ottla.coordinator.facts import Cause, GenerationCompleted, GenerationStarted, RebalanceStarted, StateChanged
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.broker.wire import Client

RUNS = 100
JOIN, SYNC, COMMIT = 3, 1, 2
"""Versions: a member gets its id with its first join."""


class Member:
    """What it sends is counted by rules that name its client id."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self.id = ""
        self.generation = -1
        self._client = client

    @classmethod
    async def connected(cls, kafka: Kafka, name: str) -> "Member":
        host, port = kafka.bootstrap.split(":")
        return cls(Client(*await asyncio.open_connection(host, int(port))), name)

    async def join(self, metadata: bytes = b"") -> Any:
        self.ask_to_join(metadata)
        return await self.joined()

    async def joined(self) -> Any:
        joined = await self._client.receive(JoinGroupResponse, JOIN)
        assert joined.error_code == 0
        self.id, self.generation = joined.member_id, joined.generation_id
        return joined

    def ask_to_join(self, metadata: bytes = b"") -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
        request = JoinGroupRequest(
            group_id="shop",
            member_id=self.id,
            protocol_type="test",
            protocols=protocols,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
        )
        self._client.send(request, JOIN, self.name)

    async def sync(self, assigned: "dict[Member, bytes] | None" = None) -> bytes:
        given = [
            SyncGroupRequestAssignment(member_id=each.id, assignment=part) for each, part in (assigned or {}).items()
        ]
        request = SyncGroupRequest(group_id="shop", generation_id=self.generation, member_id=self.id, assignments=given)
        self._client.send(request, SYNC, self.name)
        synced = await self._client.receive(SyncGroupResponse, SYNC)
        assert synced.error_code == 0
        return bytes(synced.assignment)

    def ask_to_commit(self, offset: int) -> None:
        topic = OffsetCommitRequestTopic(
            name="orders", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        )
        request = OffsetCommitRequest(
            group_id="shop", generation_id_or_member_epoch=self.generation, member_id=self.id, topics=[topic]
        )
        self._client.send(request, COMMIT, self.name)

    async def commit(self, offset: int) -> int:
        self.ask_to_commit(offset)
        answer = await self._client.receive(OffsetCommitResponse, COMMIT)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def again(self, kafka: Kafka) -> None:
        """On another connection, as a client does whose request has timed out."""
        self._client.close()
        self._client = (await Member.connected(kafka, self.name))._client

    def close(self) -> None:
        self._client.close()


async def stable(kafka: Kafka) -> tuple[Member, Member]:
    """Two members in generation 2, of which the first leads."""
    leader, follower = await Member.connected(kafka, "leader"), await Member.connected(kafka, "follower")
    await leader.join()
    await leader.sync({leader: b"all"})
    joining = asyncio.create_task(follower.join())
    both = partial(kafka.wait, lambda known: len(known.group("shop").members) == 2, describe="both are members")
    await asyncio.to_thread(both)
    await leader.join()
    await joining
    await asyncio.gather(leader.sync({leader: b"0", follower: b"1"}), follower.sync())
    return leader, follower


async def ask_for_a_rebalance(kafka: Kafka, leader: Member) -> None:
    """By its join, which waits for the other's."""
    leader.ask_to_join(b"changed")
    waiting = partial(kafka.wait, lambda known: known.group("shop").state == "PreparingRebalance", describe="it begins")
    await asyncio.to_thread(waiting)


async def hit(rule: Any) -> None:
    await asyncio.to_thread(rule.wait, 1, within=20)


async def follower_loses_its_join(kafka: Kafka) -> None:
    """G11: the repeated join is answered at once, and no rebalance starts."""
    leader, follower = await stable(kafka)
    lost = kafka.fault(api="JoinGroup", client_id="follower", do={"drop": "response"})
    await ask_for_a_rebalance(kafka, leader)
    follower.ask_to_join()
    await leader.joined()
    await hit(lost)
    await leader.sync({leader: b"2", follower: b"3"})

    await follower.again(kafka)
    await follower.join()

    assert follower.generation == leader.generation
    assert await follower.sync() == b"3"
    leader.close()
    follower.close()


async def leader_loses_its_join(kafka: Kafka) -> None:
    """G12: the group waits for the leader, whose repeated join is answered at once."""
    leader, follower = await stable(kafka)
    lost = kafka.fault(api="JoinGroup", client_id="leader", do={"drop": "response"})
    await ask_for_a_rebalance(kafka, leader)
    await follower.join()
    await hit(lost)
    syncing = asyncio.create_task(follower.sync())

    await leader.again(kafka)
    joined = await leader.join(b"changed")

    assert (joined.generation_id, joined.leader, len(joined.members)) == (follower.generation, leader.id, 2)
    assert await leader.sync({leader: b"4", follower: b"5"}) == b"4"
    assert await syncing == b"5"
    leader.close()
    follower.close()


async def leaders_sync_is_held(kafka: Kafka) -> None:
    """The follower's sync waits until the leader's is served."""
    leader, follower = await stable(kafka)
    held = kafka.fault(api="SyncGroup", client_id="leader", do={"hold": True})
    await ask_for_a_rebalance(kafka, leader)
    await follower.join()
    await leader.joined()
    syncing = asyncio.create_task(leader.sync({leader: b"6", follower: b"7"}))
    waiting = asyncio.create_task(follower.sync())
    await hit(held)
    assert await asyncio.to_thread(lambda: kafka.group("shop").state) == "CompletingRebalance"
    assert not waiting.done()

    assert await asyncio.to_thread(held.release) == 1

    assert (await syncing, await waiting) == (b"6", b"7")
    leader.close()
    follower.close()


async def commit_is_lost(kafka: Kafka) -> None:
    """It was applied, and the repeated one is answered."""
    leader, follower = await stable(kafka)
    lost = kafka.fault(api="OffsetCommit", client_id="follower", do={"drop": "response"})
    follower.ask_to_commit(5)
    await hit(lost)
    assert await asyncio.to_thread(lambda: kafka.group("shop").offsets) == {("orders", 0): 5}

    await follower.again(kafka)

    assert await follower.commit(5) == 0
    leader.close()
    follower.close()


Scene = Callable[[Kafka], Coroutine[Any, Any, None]]
REPORTED = (RebalanceStarted, GenerationStarted, GenerationCompleted, StateChanged)


def story(kafka: Kafka) -> list[tuple[str, int, str]]:
    """What the coordinator has reported of the group, without times and ids."""
    facts = [fact for _, fact in kafka.group("shop").facts if isinstance(fact, REPORTED)]
    return [
        (type(each).__name__, each.generation, str(getattr(each, "cause", None) or getattr(each, "to_state", "")))
        for each in facts
    ]


@pytest.mark.parametrize(
    ("scene", "generations"),
    [(follower_loses_its_join, 3), (leader_loses_its_join, 3), (leaders_sync_is_held, 3), (commit_is_lost, 2)],
)
def test_story_is_the_same_in_every_run(bed: Testbed, handle: Kafka, scene: Scene, generations: int) -> None:
    bed.run(bed.writer.ensure_group_coordinators())  # Which its members do not ask for.
    stories = []
    for _ in range(RUNS):
        begin = bed.histories.generation_max
        handle.create_topic("orders", partitions=1)
        asyncio.run(scene(handle))
        # A group begins with generation 0, and its first one is above all that there were.
        reported = [(name, max(generation - begin, 0), what) for name, generation, what in story(handle)]
        assert all(fault.hits == 1 for fault in handle.faults)
        handle.reset()
        stories.append(reported)

    assert [each for each in stories if each != stories[0]] == []
    started = [generation for name, generation, _ in stories[0] if name == "GenerationCompleted"]
    assert started == list(range(1, generations + 1))
    causes = [what for name, _, what in stories[0] if name == "RebalanceStarted"]
    assert causes[0] == str(Cause.MEMBER_JOINED)
    assert len(causes) == generations
