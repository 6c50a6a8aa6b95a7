"""What a test does to a group without a client: as an administrator would, by the group's coordinator.

Coroutines of the brokers' loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ottla.broker.assembly import Parts
from ottla.broker.coordinators.hosted_partition import HostedPartition
from ottla.broker.runtime import complete
from ottla.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    GroupRequest,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    RequestRebalance,
)
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.results import CommitResult, DeleteResult, LeaveResult
from ottla.protocol.errors import ErrorCode, UnknownTopicOrPartition, error_for
from ottla.testing.hosting import HostedBrokers
from ottla.testing.reading import BrokerReader, near_names
from ottla.testing.views import GroupView, MemberView
from ottla.testing.wire import WireRing


class GroupCommands:
    def __init__(
        self,
        hosted: HostedBrokers,
        reader: BrokerReader,
        wire: WireRing,
        coordinators_ensured: Callable[[], Awaitable[None]],
    ) -> None:
        """`coordinators_ensured` waits until there are coordinators."""
        self._hosted = hosted
        self._reader = reader
        self._wire = wire
        self._coordinators_ensured = coordinators_ensured

    async def commit(self, group_id: str, offsets: Sequence[OffsetToCommit]) -> None:
        """For a group without members. Offsets of partitions that do not exist are refused and the others committed, as
        OffsetCommit does it (§9.1.1). Raises its KafkaError."""
        image = self._reader.image
        known = tuple(each for each in offsets if image.partition(each.topic, each.partition) is not None)

        def asked(token: int) -> CommitOffsets:
            # Now, and not before the wait for coordinators: it stands among the commits of clients where it is applied.
            if self._wire.recorder is not None:
                self._wire.recorder.note_offsets(group_id, known)
            return CommitOffsets(token, group_id, "", None, -1, known)

        if known:
            result: CommitResult = await self._ask(group_id, asked)
            for each in result.partitions:
                if each.error is not ErrorCode.NONE:
                    what = f"the offset of {each.topic}-{each.partition} cannot be committed"
                    raise error_for(each.error, f"{what}: {self._why(group_id, each.error)}")
        for unknown in (each for each in offsets if each not in known):
            what = f"the offset of {unknown.topic}-{unknown.partition} cannot be committed"
            why = self._reader.no_partition(unknown.topic, unknown.partition)
            raise UnknownTopicOrPartition(f"{what}: {why}")

    async def set_offsets(self, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
        """As `commit`."""
        await self.commit(group_id, [OffsetToCommit(topic, index, offset) for index, offset in offsets.items()])

    async def evict(self, group_id: str, member: str, reason: str) -> str:
        """A member by its member id, its instance id, or its client id where no other has that. Gives its member id.
        Raises UnknownMemberId."""
        found = _member(self._reader.group(group_id), member)
        leaving = LeavingMember(found.member_id, found.group_instance_id, reason)
        result: LeaveResult = await self._ask(group_id, lambda token: LeaveGroup(token, group_id, (leaving,)))
        error = result.error or result.members[0].error
        if error:
            raise error_for(error, f"member {found.member_id} of group {group_id!r} cannot be removed")
        return found.member_id

    async def delete(self, group_id: str) -> None:
        """With its offsets. Raises the KafkaError of DeleteGroups."""
        result: DeleteResult = await self._ask(group_id, lambda token: DeleteGroup(token, group_id))
        if result.error is not ErrorCode.NONE:
            why = self._why(group_id, result.error)
            raise error_for(result.error, f"group {group_id!r} cannot be deleted: {why}")

    def rebalance(self, group_id: str) -> None:
        """Raises UnknownMemberId where it has no members."""
        if not self._reader.group(group_id).members:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} has no members, so nothing to rebalance")
        parts, hosted = self._coordinator(group_id)
        hosted.handle(RequestRebalance(group_id))
        parts.runtime.end_event()

    def _why(self, group_id: str, error: ErrorCode) -> str:
        """A group with members is theirs; of one that is not there, the near names."""
        view = self._reader.group(group_id)
        if not view.exists:
            return f"there is no such group; {near_names('group', group_id, self._reader.group_ids())}"
        if view.members:
            return f"it has members, {', '.join(each.member_id for each in view.members)}"
        return error.name

    async def _ask(self, group_id: str, made: Callable[[int], GroupRequest]) -> Any:
        """`made` gets the token. Raises CoordinatorNotAvailable, and DeadlineExceeded."""
        await self._coordinators_ensured()
        parts, hosted = self._coordinator(group_id)
        pending = parts.groups.topic.pending
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        known = pending.ask_here(hosted.handle, made(parts.groups.new_token()), partial(complete, answered))
        parts.runtime.end_event()
        return known or await answered

    def _coordinator(self, group_id: str) -> tuple[Parts, HostedPartition[GroupShard]]:
        """Raises CoordinatorNotAvailable."""
        for parts in self._hosted.parts().values():
            hosted = parts.groups.topic.partition_of(group_id)
            if hosted is not None:
                return parts, hosted
        raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no broker coordinates the group {group_id!r}")


def _member(view: GroupView, name: str) -> MemberView:
    """Raises UnknownMemberId."""
    for each in view.members:
        if name in (each.member_id, each.group_instance_id):
            return each
    by_client = [each for each in view.members if each.client_id == name]
    if len(by_client) == 1:
        return by_client[0]
    known = ", ".join(each.member_id for each in view.members) or "none"
    why = f"{len(by_client)} members have the client id" if by_client else "there is no member"
    raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"{why} {name!r} in group {view.group_id!r}, only {known}")
