"""The group APIs over the wire: shapes, versions and errors; what a group does is tested with the coordinator."""

import asyncio
from importlib import import_module
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest

from ottla.broker.coordinators import coordinator_loader
from ottla.broker.server.request_context import GROUP_OPERATIONS
from ottla.coordinator.events import DescribeGroup
from ottla.protocol.errors import ErrorCode
from tests.broker.asking import Asking, Client, messages, running
from tests.broker.test_topic_admin import creatable, created

find = messages("find_coordinator")
join = messages("join_group")
sync = messages("sync_group")
beat = messages("heartbeat")
leave = messages("leave_group")
commit = messages("offset_commit")
fetch = messages("offset_fetch")
forget = messages("offset_delete")
describe = messages("describe_groups")
listing = messages("list_groups")
remove = messages("delete_groups")


async def found(broker: Asking, group: str = "g", version: int = 3) -> Any:
    return await broker.ask(find.FindCoordinatorRequest(key=group), version)


def join_request(member_id: str = "", group: str = "g", **fields: Any) -> Any:
    protocols = [join.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]
    values = {"session_timeout_ms": 10000, "rebalance_timeout_ms": 10000, "protocol_type": "consumer"}
    return join.JoinGroupRequest(group_id=group, member_id=member_id, protocols=protocols, **(values | fields))


async def joined(client: Client, group: str = "g", version: int = 5, **fields: Any) -> Any:
    """Alone in its group: the join completes as soon as the member is known."""
    response = await client.ask(join_request(group=group, **fields), version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await client.ask(join_request(response.member_id, group, **fields), version)
    assert response.error_code == 0
    return response


async def stable(client: Client, group: str = "g", **fields: Any) -> Any:
    response = await joined(client, group, **fields)
    assignments = [sync.SyncGroupRequestAssignment(member_id=response.member_id, assignment=b"assigned")]
    request = sync.SyncGroupRequest(
        group_id=group,
        generation_id=response.generation_id,
        member_id=response.member_id,
        assignments=assignments,
    )
    assert (await client.ask(request, 3)).assignment == b"assigned"
    return response


def commit_request(group: str, offsets: dict[tuple[str, int], int], **fields: Any) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata="note"
            )
        )
    named = [commit.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
    return commit.OffsetCommitRequest(group_id=group, topics=named, **fields)


def codes(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions
    }


async def committed(broker: Asking, group: str, offsets: dict[tuple[str, int], int], version: int = 7) -> Any:
    return codes(await broker.ask(commit_request(group, offsets), version))


async def fetched(broker: Asking, group: str, version: int = 7, topics: dict[str, list[int]] | None = None) -> Any:
    asked = (
        None
        if topics is None
        else [fetch.OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()]
    )
    return await broker.ask(fetch.OffsetFetchRequest(group_id=group, topics=asked), version)


# Finding the coordinator


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_found_and_its_topic_created(tmp_path: Path, version: int) -> None:
    """G03, on one broker."""
    async with running(tmp_path, {"offsets.topic.num.partitions": "3"}) as broker:
        if version >= 4:
            response = await broker.ask(find.FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
            answers = response.coordinators
            assert [answer.key for answer in answers] == ["g", "h"]
        else:
            answers = [await found(broker, version=version)]
        assert all(
            (answer.error_code, answer.node_id, f"{answer.host}:{answer.port}") == (0, 1, broker.broker.bootstrap)
            for answer in answers
        )
        topic = broker.broker.image.topics["__consumer_offsets"]
        assert (len(topic.partitions), topic.is_internal) == (3, True)
        assert topic.configs["cleanup.policy"] == "compact"


class HeldImport:
    """Of a loader's modules: begins in a thread, and ends when it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = Event(), Event()
        monkeypatch.setattr(coordinator_loader, "import_module", self._held)

    def _held(self, name: str) -> ModuleType:
        self.begun.set()
        assert self.may_end.wait(10)
        return import_module(name)


@pytest.mark.parametrize(("key_type", "topic"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
async def test_client_waits_while_the_coordinator_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_type: int, topic: str
) -> None:
    """It would ask again: librdkafka's after a second."""
    held = HeldImport(monkeypatch)
    async with running(tmp_path) as broker:
        asking = [
            asyncio.create_task(broker.ask(find.FindCoordinatorRequest(key="x", key_type=key_type), 3))
            for _ in range(2)
        ]
        assert await asyncio.to_thread(held.begun.wait, 10)
        assert topic not in broker.broker.image.topics
        assert not any(each.done() for each in asking)
        held.may_end.set()

        assert [(each.error_code, each.node_id) for each in await asyncio.gather(*asking)] == [(0, 1)] * 2


@pytest.mark.parametrize("key_type", [0, 1])
async def test_coordinator_imported_behind_closed_doors_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_type: int
) -> None:
    held = HeldImport(monkeypatch)
    request = find.FindCoordinatorRequest(key="x", key_type=key_type)
    async with running(tmp_path) as broker:
        first = asyncio.create_task(broker.ask(request, 3))
        assert await asyncio.to_thread(held.begun.wait, 10)
        broker.broker.runtime.is_serving = False
        held.may_end.set()
        await first
        broker.broker.runtime.is_serving = True

        found = await asyncio.wait_for(broker.ask(request, 3), 10)

        assert (found.error_code, found.node_id) == (0, 1)


@pytest.mark.parametrize(
    ("version", "key_type", "code"),
    [
        (1, 7, ErrorCode.INVALID_REQUEST),
        (5, 2, ErrorCode.INVALID_REQUEST),
        (6, 2, ErrorCode.INVALID_REQUEST),
        (6, 9, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_kinds_of_coordinators_are_refused(
    tmp_path: Path, version: int, key_type: int, code: ErrorCode
) -> None:
    async with running(tmp_path) as broker:
        response = await broker.ask(
            find.FindCoordinatorRequest(key="x", coordinator_keys=["x"], key_type=key_type), version
        )
        answer = response.coordinators[0] if version >= 4 else response

        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (code, -1, "", -1)
        assert "support" in answer.error_message or "key type" in answer.error_message


async def test_without_the_offsets_topic_no_broker_coordinates(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert (await client.ask(join_request(), 5)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.ask(join_request(group=""), 5)).error_code == ErrorCode.INVALID_GROUP_ID
        assert (await client.ask(beat.HeartbeatRequest(group_id="g"), 3)).error_code == ErrorCode.NOT_COORDINATOR


# BrokerLifecycle


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_in_every_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        client = await broker.client()
        first = await client.ask(join_request(), version)
        assert (first.error_code == ErrorCode.MEMBER_ID_REQUIRED) == (version >= 4)
        if version >= 4:
            assert first.protocol_name is None if version >= 7 else first.protocol_name == ""
        response = await client.ask(join_request(first.member_id), version) if version >= 4 else first

        assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
        assert response.leader == response.member_id
        assert response.member_id.startswith("tester-")
        assert [member.member_id for member in response.members] == [response.member_id]
        assert response.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize(("version", "rebalance_timeout_ms"), [(0, 10000), (1, 70000)])
async def test_before_version_1_the_session_timeout_bounds_a_rebalance(
    tmp_path: Path, version: int, rebalance_timeout_ms: int
) -> None:
    """G07, §5.4"""
    async with running(tmp_path) as broker:
        await found(broker)
        await joined(await broker.client(), version=version, rebalance_timeout_ms=rebalance_timeout_ms)
        groups = broker.broker.groups
        described = groups.ask(None, DescribeGroup(groups.new_token(), "g"), lambda result: result)

        assert described.members[0].rebalance_timeout_ms == rebalance_timeout_ms


@pytest.mark.parametrize(
    ("size_bytes", "error"),
    [(900_000, ErrorCode.NONE), (2_000_000, ErrorCode.NONE), (4_000_000, ErrorCode.UNKNOWN_SERVER_ERROR)],
)
async def test_a_long_assignment_is_stored_as_far_as_the_log_takes_it(
    tmp_path: Path, size_bytes: int, error: ErrorCode
) -> None:
    async with running(tmp_path, {"message.max.bytes": "3000000"}) as broker:
        await found(broker)
        client, other = await broker.client(), await broker.client()
        member = await joined(client)
        mine = bytes(range(100)) * (size_bytes // 100)
        request = sync.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member.member_id,
            assignments=[sync.SyncGroupRequestAssignment(member_id=member.member_id, assignment=mine)],
        )
        response = await client.ask(request, 3)
        for _ in range(3):
            # What arrives later does not write over it.
            await other.ask(sync.SyncGroupRequest(group_id="x" * 30_000), 3)
        again = await client.ask(sync.SyncGroupRequest(group_id="g", generation_id=1, member_id=member.member_id), 3)

    assert (response.error_code, response.assignment) == (error, mine if error == ErrorCode.NONE else b"")
    assert again.assignment == response.assignment


@pytest.mark.parametrize("version", range(6))
async def test_a_member_syncs_in_every_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        client = await broker.client()
        member = await joined(client)
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        request = sync.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member.member_id,
            assignments=[sync.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine")],
            **names,
        )
        if version >= 5:
            nameless = sync.SyncGroupRequest(group_id="g", generation_id=1, member_id=member.member_id)
            assert (await client.ask(nameless, version)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        response = await client.ask(request, version)

        assert (response.error_code, response.assignment) == (0, b"mine")
        assert (response.protocol_type, response.protocol_name) == (
            ("consumer", "range") if version >= 5 else (None, None)
        )


@pytest.mark.parametrize("version", range(5))
async def test_heartbeats_are_checked_in_every_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        client = await broker.client()
        member = await stable(client)

        async def code(member_id: str, generation: int) -> int:
            request = beat.HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation)
            return (await client.ask(request, version)).error_code

        assert await code(member.member_id, 1) == 0
        assert await code(member.member_id, 2) == ErrorCode.ILLEGAL_GENERATION
        assert await code("unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
async def test_members_leave_in_every_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        client = await broker.client()
        member = await stable(client)
        if version < 3:
            wrong = await client.ask(leave.LeaveGroupRequest(group_id="g", member_id="unknown"), version)
            assert wrong.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            right = await client.ask(leave.LeaveGroupRequest(group_id="g", member_id=member.member_id), version)
            assert right.error_code == 0
        else:
            members = [leave.MemberIdentity(member_id=each) for each in ("unknown", member.member_id)]
            response = await client.ask(leave.LeaveGroupRequest(group_id="g", members=members), version)
            assert response.error_code == 0
            assert [each.error_code for each in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID, 0]
        (group,) = (await client.ask(describe.DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert (group.group_state, group.members) == ("Empty", [])


async def test_a_join_whose_client_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path, {"group.initial.rebalance.delay.ms": "60000"}) as broker:
        await found(broker)
        groups = broker.broker.groups
        client = await broker.client()
        client.send(join_request(), 3)
        other = await broker.client()
        while (await other.ask(describe.DescribeGroupsRequest(groups=["g"]), 5)).groups[0].group_state == "Dead":
            pass
        assert len(groups.topic.pending) == 1
        await client.close()
        while groups.topic.pending:
            await other.ask(describe.DescribeGroupsRequest(groups=["g"]), 5)

        (group,) = (await other.ask(describe.DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert group.group_state == "PreparingRebalance"


# Offsets


# Administration


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_in_every_version(tmp_path: Path, version: int) -> None:
    """G01."""
    async with running(tmp_path) as broker:
        await found(broker)
        member = await stable(await broker.client())
        operations = {"include_authorized_operations": True} if version >= 3 else {}
        request = describe.DescribeGroupsRequest(groups=["g", "unknown"], **operations)
        known, unknown = (await broker.ask(request, version)).groups

        assert (known.group_id, known.error_code, known.group_state) == ("g", 0, "Stable")
        assert (known.protocol_type, known.protocol_data) == ("consumer", "range")
        (described,) = known.members
        assert (described.member_id, described.client_id, described.client_host) == (
            member.member_id,
            "tester",
            "/127.0.0.1",
        )
        assert described.member_assignment == b"assigned"
        assert known.authorized_operations == (GROUP_OPERATIONS if version >= 3 else -(2**31))
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert (unknown.error_code, unknown.group_state) == (expected, "Dead")


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_and_filtered(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await stable(await broker.client(), "running")
        for number in range(5):
            await committed(broker, f"simple{number}", {("a", 0): 1})

        async def listed(**filters: list[str]) -> list[str]:
            response = await broker.ask(listing.ListGroupsRequest(**filters), version)
            assert response.error_code == 0
            return sorted(group.group_id for group in response.groups)

        assert await listed() == ["running", *(f"simple{number}" for number in range(5))]
        if version >= 4:
            assert await listed(states_filter=["stable"]) == ["running"]
            assert await listed(states_filter=["no such state"]) == []
        if version >= 5:
            assert len(await listed(types_filter=["CLASSIC"])) == 6
            assert await listed(types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(3))
async def test_empty_groups_are_deleted(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "empty", {("a", 0): 1})
        await stable(await broker.client(), "running")
        request = remove.DeleteGroupsRequest(groups_names=["empty", "running", "unknown", "empty"])
        results = (await broker.ask(request, version)).results

        assert [(result.group_id, ErrorCode(result.error_code)) for result in results] == [
            ("empty", ErrorCode.NONE),
            ("running", ErrorCode.NON_EMPTY_GROUP),
            ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
    async with running(tmp_path) as broker:
        assert (await fetched(broker, "empty")).topics == []
