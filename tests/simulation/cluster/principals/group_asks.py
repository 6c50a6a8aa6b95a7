"""Requests about groups and their offsets (§62.3)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.security.acl import AclOperation, ResourceType
from tests.simulation.cluster.principals.asks import (
    CLUSTER_CODE,
    GROUP_CODE,
    GROUPS,
    NOT_ASKED,
    TOPIC_CODE,
    Ask,
    Deed,
    Draw,
    first_wrong,
    wrong_code,
    wrong_if_shown,
)
from tests.simulation.cluster.principals.rights import Seen
from tests.simulation.commits import UNAVAILABLE

READ, DESCRIBE, DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
SEVERAL_KEYS_SINCE, SEVERAL_GROUPS_SINCE, ERROR_OF_ALL_SINCE, NO_PROTOCOL_SINCE = 4, 8, 2, 7
OPERATIONS_SINCE = 3
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 6_000, 500
# A member that is gone is waited for.
JOIN_WITHIN_MS = 20_000
STRANGER = "stranger"


# Offsets.


def commit_offsets(draw: Draw) -> Ask:
    group, names, deeds, topics = draw.group(), draw.names(), [], []
    for name in names:
        offset = draw.number()
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics.append(OffsetCommitRequestTopic(name=name, partitions=[part]))
        deeds.append(Deed(("offset", group, name, offset), partial(_may_commit, group, name)))
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    wrong = partial(_wrong_commit, group)
    return Ask(request, draw.version(2, 9), wrong, coordinator_of=group, deeds=deeds)


def _may_commit(group: str, name: str, seen: Seen) -> bool:
    return seen.group(READ, group) and seen.topic(READ, name)


def _wrong_commit(group: str, seen: Seen, response: Any) -> str | None:
    may_read = seen.group(READ, group)
    return first_wrong(
        wrong_code(
            f"commit of {topic.name} in {group}",
            part.error_code,
            TOPIC_CODE if may_read else GROUP_CODE,
            is_allowed=may_read and seen.topic(READ, topic.name),
        )
        for topic in response.topics
        for part in topic.partitions
    )


def fetch_offsets(draw: Draw) -> Ask:
    version, groups = draw.version(1, 9), draw.rng.sample(GROUPS, draw.rng.randint(1, 2))
    asks_for_all = version >= ERROR_OF_ALL_SINCE and draw.rng.random() < 0.5
    names = draw.names()
    if version >= SEVERAL_GROUPS_SINCE:
        topics = (
            None if asks_for_all else [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names]
        )
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups]
        )
    else:
        groups = groups[:1]
        named = None if asks_for_all else [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names]
        request = OffsetFetchRequest(group_id=groups[0], topics=named)

    def wrong(seen: Seen, response: Any) -> str | None:
        if version >= SEVERAL_GROUPS_SINCE:
            answers = [(each.group_id, each, each.error_code) for each in response.groups]
        else:
            answers = [(groups[0], response, response.error_code)]
        return first_wrong(
            _wrong_offsets(group, answer, code, seen, has_code=version >= ERROR_OF_ALL_SINCE, asks_for_all=asks_for_all)
            for group, answer, code in answers
        )

    return Ask(request, version, wrong, coordinator_of=groups[0])


def _wrong_offsets(group: str, answer: Any, code: int, seen: Seen, *, has_code: bool, asks_for_all: bool) -> str | None:
    what, may_describe = f"offsets of {group}", seen.group(DESCRIBE, group)
    if has_code:
        if wrong := wrong_code(what, code, GROUP_CODE, is_allowed=may_describe):
            return wrong
        if code:
            return f"{what} are denied and in the answer" if answer.topics and not may_describe else None
    for topic in answer.topics:
        is_allowed = may_describe and seen.topic(DESCRIBE, topic.name)
        about = f"{what} in {topic.name}"
        if asks_for_all:
            if not is_allowed:
                return f"{about} are denied and listed"
            continue
        for part in topic.partitions:
            if not has_code and may_describe and part.error_code in UNAVAILABLE:
                # Where there is no other place for what is wrong with the whole, each topic has it.
                continue
            refusal = TOPIC_CODE if may_describe else GROUP_CODE
            if wrong := wrong_code(about, part.error_code, refusal, is_allowed=is_allowed):
                return wrong
            if not is_allowed and part.committed_offset != -1:
                return f"{about} are denied and shown"
    return None


def delete_offsets(draw: Draw) -> Ask:
    group = draw.group()
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name in draw.names()]

    def wrong(seen: Seen, response: Any) -> str | None:
        may_delete, what = seen.group(DELETE, group), f"deletion of offsets of {group}"
        if response.error_code:
            return wrong_code(what, response.error_code, GROUP_CODE, is_allowed=may_delete)
        if not may_delete:
            return f"{what} is denied and was answered"
        return first_wrong(
            wrong_code(f"{what} in {each.name}", part.error_code, TOPIC_CODE, is_allowed=seen.topic(READ, each.name))
            for each in response.topics
            for part in each.partitions
        )

    return Ask(OffsetDeleteRequest(group_id=group, topics=topics), 0, wrong, coordinator_of=group)


# Groups.


def find_coordinators(draw: Draw) -> Ask:
    version, groups = draw.version(0, 6), draw.rng.sample(GROUPS, 2)
    request = FindCoordinatorRequest(key=groups[0], key_type=0, coordinator_keys=groups)

    def wrong(seen: Seen, response: Any) -> str | None:
        found = response.coordinators if version >= SEVERAL_KEYS_SINCE else [response]
        names = [each.key for each in found] if version >= SEVERAL_KEYS_SINCE else groups[:1]
        return first_wrong(
            _wrong_coordinator(f"coordinator of {name}", each, GROUP_CODE, is_allowed=seen.group(DESCRIBE, name))
            for name, each in zip(names, found, strict=True)
        )

    return Ask(request, version, wrong)


def find_share_coordinator(draw: Draw) -> Ask:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["vgroup:AAAAAAAAAAAAAAAAAAAAAA:0"])

    def wrong(seen: Seen, response: Any) -> str | None:
        is_allowed = seen.cluster(AclOperation.CLUSTER_ACTION)
        return first_wrong(
            _wrong_coordinator("coordinator of a share group", each, CLUSTER_CODE, is_allowed=is_allowed)
            for each in response.coordinators
        )

    return Ask(request, draw.version(6, 6), wrong)


def _wrong_coordinator(what: str, found: Any, refusal: int, *, is_allowed: bool) -> str | None:
    wrong = wrong_code(what, found.error_code, refusal, is_allowed=is_allowed)
    shown = {"node": found.node_id, "host": found.host, "port": found.port}
    return wrong or (None if is_allowed else wrong_if_shown(what, shown, {"node": -1, "host": "", "port": -1}))


def join_group(draw: Draw) -> Ask:
    version, group = draw.version(0, 9), draw.group()
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )

    def wrong(seen: Seen, response: Any) -> str | None:
        what, is_allowed = f"join of {group}", seen.group(READ, group)
        shown = {"protocol": response.protocol_name, "member": response.member_id, "leader": response.leader}
        hidden = {"protocol": None if version >= NO_PROTOCOL_SINCE else "", "member": "", "leader": ""}
        wrong = wrong_code(what, response.error_code, GROUP_CODE, is_allowed=is_allowed)
        return wrong or (None if is_allowed else wrong_if_shown(what, shown, hidden))

    return Ask(request, version, wrong, coordinator_of=group, within_ms=JOIN_WITHIN_MS)


def act_as_a_member(draw: Draw) -> Ask:
    """Heartbeat, SyncGroup and LeaveGroup of a member that there is not."""
    group = draw.group()
    requests = [
        (HeartbeatRequest(group_id=group, generation_id=1, member_id=STRANGER), 4),
        (SyncGroupRequest(group_id=group, generation_id=1, member_id=STRANGER), 5),
        (LeaveGroupRequest(group_id=group, member_id=STRANGER, members=[MemberIdentity(member_id=STRANGER)]), 5),
    ]
    request, highest = draw.rng.choice(requests)

    def wrong(seen: Seen, response: Any) -> str | None:
        what = f"{type(request).__name__} of {group}"
        return wrong_code(what, response.error_code, GROUP_CODE, is_allowed=seen.group(READ, group))

    return Ask(request, draw.version(0, highest), wrong, coordinator_of=group)


def describe_groups(draw: Draw) -> Ask:
    version, asks = draw.version(0, 6), draw.rng.random() < 0.5
    groups = draw.rng.sample((*GROUPS, "group0"), 2)
    request = DescribeGroupsRequest(groups=groups, include_authorized_operations=asks)

    def wrong(seen: Seen, response: Any) -> str | None:
        def each() -> Iterator[str | None]:
            for group in response.groups:
                name = group.group_id
                what, is_allowed = f"description of {name}", seen.group(DESCRIBE, name)
                yield wrong_code(what, group.error_code, GROUP_CODE, is_allowed=is_allowed)
                if not is_allowed:
                    shown = {"state": group.group_state, "members": group.members, "of": group.protocol_type}
                    yield wrong_if_shown(what, shown, {"state": "", "members": [], "of": ""})
                elif version >= OPERATIONS_SINCE and not group.error_code:
                    expected = seen.bits(ResourceType.GROUP, name) if asks else NOT_ASKED
                    yield None if group.authorized_operations == expected else f"operations on {name}: {group}"

        return first_wrong(each())

    return Ask(request, version, wrong, coordinator_of=groups[0])


def list_groups(draw: Draw) -> Ask:
    def wrong(seen: Seen, response: Any) -> str | None:
        if seen.cluster(DESCRIBE):
            return None
        denied = [each.group_id for each in response.groups if not seen.group(DESCRIBE, each.group_id)]
        return f"groups {denied} are denied and listed" if denied else None

    return Ask(ListGroupsRequest(), draw.version(0, 5), wrong)


def delete_groups(draw: Draw) -> Ask:
    groups = draw.rng.sample(GROUPS, 2)

    def wrong(seen: Seen, response: Any) -> str | None:
        return first_wrong(
            wrong_code(
                f"deletion of {each.group_id}",
                each.error_code,
                GROUP_CODE,
                is_allowed=seen.group(DELETE, each.group_id),
            )
            for each in response.results
        )

    return Ask(DeleteGroupsRequest(groups_names=groups), draw.version(0, 2), wrong, coordinator_of=groups[0])


ASKS: list[Callable[[Draw], Ask]] = [
    commit_offsets,
    commit_offsets,
    commit_offsets,
    fetch_offsets,
    fetch_offsets,
    delete_offsets,
    find_coordinators,
    find_share_coordinator,
    join_group,
    act_as_a_member,
    describe_groups,
    list_groups,
    delete_groups,
]
