"""What is decided about the members of a large group comes in slices, and is one step all the same."""

from typing import Any

import pytest

from ottla.coordinator.events import DescribeGroup, ExpireOffsets, LeaveGroup, LeavingMember
from ottla.coordinator.group_removal import OFFSETS_PER_SLICE
from ottla.coordinator.records import GroupMetadata, StoredMember, build_large_group_metadata_value
from ottla.coordinator.records import build_group_metadata_value as build
from ottla.coordinator.runtime.effects import Reply
from ottla.coordinator.runtime.step_context import NO_BOUND
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell

PER_SLICE = 4
MEMBERS = 4 * PER_SLICE + 1
# Of one member: its answer, its timer, its fact. And a few of the group.
EFFECTS_MAX = 3 * PER_SLICE + 4


@pytest.fixture
def shell() -> Shell:
    return Shell(members_per_slice=PER_SLICE)


def stable(shell: Shell, **settings: Any) -> list[Client]:
    clients = shell.stable_group(*(f"c{number}" for number in range(MEMBERS)), **settings)
    shell.slices.clear()
    return clients


def most_effects(shell: Shell) -> int:
    return max(map(len, shell.slices))


def rejoin(clients: list[Client]) -> None:
    for client in clients:
        client.join()


def built(empty: GroupMetadata, members: tuple[StoredMember, ...], *, bytes_max: int) -> tuple[bytes | None, int]:
    """The value, and how many slices came before it."""
    building = build_large_group_metadata_value(empty, iter(members), members_at_once=PER_SLICE, bytes_max=bytes_max)
    slices = 0
    while True:
        try:
            next(building)
            slices += 1
        except StopIteration as end:
            return end.value, slices


def test_a_large_generation_begins_in_slices(shell: Shell) -> None:
    clients = stable(shell)
    rejoin(clients)

    assert {client.joined.generation for client in clients} == {clients[0].generation}
    assert len(clients[0].joined.members) == MEMBERS
    assert most_effects(shell) <= EFFECTS_MAX


def test_a_large_assignment_is_handed_out_in_slices(shell: Shell) -> None:
    clients = stable(shell)
    rejoin(clients)
    for client in clients[1:]:
        client.sync()
    shell.slices.clear()
    clients[0].sync_all(clients)

    assert [client.synced.assignment for client in clients] == [client.name.encode() for client in clients]
    assert len(shell.slices) > 2 * MEMBERS // PER_SLICE
    assert most_effects(shell) <= EFFECTS_MAX


def test_many_members_leave_in_slices(shell: Shell) -> None:
    clients = stable(shell)
    leaving = tuple(LeavingMember(client.member_id) for client in clients[:-1])
    result = shell.send(LeaveGroup(shell.token(), "g", leaving))

    assert [each.error for each in result.members] == [ErrorCode.NONE] * len(leaving)
    assert list(shell.group().members) == [clients[-1].member_id]
    assert most_effects(shell) <= EFFECTS_MAX


def test_members_that_do_not_rejoin_go_in_slices(shell: Shell) -> None:
    clients = stable(shell, session_timeout_ms=600_000)
    clients[0].join()
    shell.slices.clear()
    shell.advance(60_000)

    assert list(shell.group().members) == [clients[0].member_id]
    assert most_effects(shell) <= EFFECTS_MAX


def test_members_that_do_not_sync_go_in_slices(shell: Shell) -> None:
    clients = stable(shell, session_timeout_ms=600_000)
    rejoin(clients)
    clients[0].sync_all(clients)
    shell.slices.clear()
    shell.advance(60_000)

    assert list(shell.group().members) == [clients[0].member_id]
    assert most_effects(shell) <= EFFECTS_MAX


def test_a_large_static_replacement_is_stored_in_slices(shell: Shell) -> None:
    clients = [shell.client(f"c{number}", instance_id=f"i{number}") for number in range(MEMBERS)]
    rejoin(clients)
    shell.advance(0)
    rejoin(clients)
    for client in clients[1:]:
        client.sync()
    clients[0].sync_all(clients)
    shell.slices.clear()
    clients[1].member_id = ""
    answer = clients[1].join()

    assert (answer.error, shell.state()) == (ErrorCode.NONE, "Stable")
    assert len(shell.slices) > MEMBERS // PER_SLICE


def first_slice(shell: Shell, event: object) -> list[Any]:
    return shell.partition.step(event, shell.now_ms, shell.wall_ms)


def test_unloading_ends_a_step_that_is_under_way(shell: Shell) -> None:
    clients = stable(shell)
    rejoin(clients[:-1])
    before = first_slice(shell, clients[-1].join_event(shell.token()))
    assert shell.partition.rest
    after = shell.partition.unload(shell.now_ms, shell.wall_ms)

    answered = [effect.result for effect in (*before, *after) if isinstance(effect, Reply)]
    assert [each.error for each in answered] == [ErrorCode.NONE] * MEMBERS
    assert not shell.partition.rest


@pytest.mark.parametrize("count", [0, 1, PER_SLICE, 3 * PER_SLICE + 1])
def test_a_value_built_in_slices_is_the_same(count: int) -> None:
    members = tuple(StoredMember(f"m{number}", None, "c", "/h", 1, 2, b"s", b"a") for number in range(count))
    empty = GroupMetadata("consumer", 3, "range", "m0", 5, ())

    value, slices = built(empty, members, bytes_max=NO_BOUND)

    assert (value, slices) == (build(empty._replace(members=members)), -(-count // PER_SLICE))


def test_a_value_that_is_too_large_is_built_no_further() -> None:
    members = tuple(StoredMember(f"m{number}", None, "c", "/h", 1, 2, b"s", bytes(100)) for number in range(MEMBERS))
    empty = GroupMetadata("consumer", 3, "range", "m0", 5, ())
    whole = len(build(empty._replace(members=members)))

    assert built(empty, members, bytes_max=whole)[0] is not None
    assert built(empty, members, bytes_max=whole - 1) == (None, -(-MEMBERS // PER_SLICE) - 1)
    assert built(empty, members, bytes_max=len(build(empty)) + 100) == (None, 0)


def test_members_get_an_error_if_their_assignments_are_too_large(shell: Shell) -> None:
    clients = stable(shell)
    rejoin(clients)
    for client in clients[1:]:
        client.sync()
    shell.partition.shard.context.batch_bytes_max = lambda: 100
    shell.slices.clear()

    clients[0].sync_all(clients)

    assert [client.synced.error for client in clients] == [ErrorCode.UNKNOWN_SERVER_ERROR] * MEMBERS
    assert shell.state() == "PreparingRebalance"
    assert len(shell.slices) > MEMBERS // PER_SLICE


def test_many_groups_and_members_are_loaded_in_slices(shell: Shell) -> None:
    stable(shell)
    for number in range(MEMBERS):
        shell.client("c", group_id=f"simple {number}").commit(1)
    shell.slices.clear()
    shell.move_coordinator()

    assert (len(shell.timers), len(shell.partition.shard.groups)) == (MEMBERS, MEMBERS + 1)
    assert len(shell.slices) > 2 * MEMBERS // PER_SLICE
    # The first has what the end of the last term sends.
    assert max(map(len, shell.slices[1:])) <= EFFECTS_MAX


def test_requests_are_refused_until_all_groups_are_loaded(shell: Shell) -> None:
    stable(shell)
    partition = shell.empty_partition()
    shell.load_into(partition)
    partition.finish_loading(shell.now_ms, shell.wall_ms)

    (reply,) = partition.step(DescribeGroup(1, "g"), shell.now_ms, shell.wall_ms)

    assert isinstance(reply, Reply)
    assert reply.result.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_groups_expire_in_slices(shell: Shell) -> None:
    for number in range(2 * OFFSETS_PER_SLICE):
        shell.client("c", group_id=f"simple {number}").commit(1)
    shell.slices.clear()
    shell.advance(8 * 24 * 3_600_000)
    shell.happen(ExpireOffsets())

    assert not shell.partition.shard.groups
    # Of one group: its tombstones, its end.
    assert most_effects(shell) <= 3 * OFFSETS_PER_SLICE
