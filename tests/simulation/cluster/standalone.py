"""A consumer without a group's membership: it commits offsets, deletes them, deletes its group, and reads what is left.

Deleted offsets are in the ledger as commits of "none". So are those that expire, where the world lets offsets expire.
"""

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.simulation.commits import PROMPT_MS, UNAVAILABLE, Commits
from tests.simulation.member import Habits
from tests.simulation.offsets import NONE_COMMITTED

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

GROUP = "standalone"
# A group without offsets and members is none.
NO_GROUP = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class StandaloneConsumer:
    """What `Commits` asks of a member, it has."""

    member_id = ""
    generation = -1

    def __init__(self, world: "ClusterWorld", rng: random.Random, name: str) -> None:
        self.world = world
        self.rng = rng
        versions = {"find": rng.randint(0, 6)}
        self.habits = Habits(GROUP, name, None, 6_000, 6_000, versions, restlessness=0)
        self.commits = Commits(self)  # type: ignore[arg-type]

    async def live(self) -> None:
        while not self.world.writing_is_over:
            try:
                self.wire = await self.world.connect(self.habits.client_id)
                try:
                    await self._find_coordinator()
                    await self._attend()
                finally:
                    self.wire.close()
            except OSError:
                await self._sleep(20, 500)

    async def _attend(self) -> None:
        """Until the coordinator is elsewhere."""
        actions: list[Callable[[], Awaitable[ErrorCode | None]]] = [
            self.commits.commit,
            self.commits.commit,
            self.commits.fetch,
            self._delete_offset,
            self._look_around,
        ]
        while not self.world.writing_is_over:
            action = self._delete_group if self.rng.random() < 0.05 else self.rng.choice(actions)
            if await action() in UNAVAILABLE:
                return
            await self._sleep(50, 2_000)

    async def _find_coordinator(self) -> None:
        version = self.habits.versions["find"]
        request = FindCoordinatorRequest(key=GROUP, coordinator_keys=[GROUP])
        response = await self.wire.call(request, version, within_ms=PROMPT_MS)
        found = response.coordinators[0] if version >= 4 else response
        if found.error_code:
            raise ConnectionResetError("there is no coordinator")
        self.wire = await self.world.coordinator(found, self.wire, self.habits.client_id)

    async def _delete_offset(self) -> ErrorCode:
        partition = self.rng.choice(self.world.partitions)
        asked = [OffsetDeleteRequestPartition(partition_index=partition[1])]
        topics = [OffsetDeleteRequestTopic(name=partition[0], partitions=asked)]
        ledger, judge = self.world.judge.group(GROUP).offsets, self.world.judge
        write = ledger.begin(partition, NONE_COMMITTED, judge.trace.now_us())
        response = await self.wire.call(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0, within_ms=PROMPT_MS)
        code = response.error_code or response.topics[0].partitions[0].error_code
        error = self._judged("delete offset", code)
        if error is ErrorCode.NONE:
            ledger.acknowledge(write, judge.trace.now_us())
        elif error in NO_GROUP:
            ledger.refuse(partition, write)
        return error

    async def _delete_group(self) -> ErrorCode:
        judge = self.world.judge
        ledger, partitions = judge.group(GROUP).offsets, list(self.world.partitions)
        writes = [ledger.begin(partition, NONE_COMMITTED, judge.trace.now_us()) for partition in partitions]
        request = DeleteGroupsRequest(groups_names=[GROUP])
        response = await self.wire.call(request, self.rng.randint(0, 2), within_ms=PROMPT_MS)
        error = self._judged("delete group", response.results[0].error_code)
        if error is ErrorCode.NONE:
            judge.counts["groups deleted"] += 1
            for write in writes:
                ledger.acknowledge(write, judge.trace.now_us())
        return error

    async def _look_around(self) -> ErrorCode:
        """Its own group, and the one that has members."""
        groups = [GROUP, self.world.members[0].habits.group_id]
        response = await self.wire.call(DescribeGroupsRequest(groups=groups), 5, within_ms=PROMPT_MS)
        self._judged("describe groups", response.groups[0].error_code)
        # Only a part of the groups, where another broker's coordinator has the others.
        listed = await self.wire.call(ListGroupsRequest(states_filter=["Stable", "Empty"]), 4, within_ms=PROMPT_MS)
        return self._judged("list groups", listed.error_code)

    def _judged(self, what: str, code: int) -> ErrorCode:
        error = ErrorCode(code)
        if error not in UNAVAILABLE | NO_GROUP | {ErrorCode.NONE}:
            self.world.judge.violated("answers", f"{what} of {GROUP} was answered {error.name}")
        return error

    async def _sleep(self, at_least_ms: int, at_most_ms: int) -> None:
        await self.world.sleep_ms(self.rng.randint(at_least_ms, at_most_ms))
