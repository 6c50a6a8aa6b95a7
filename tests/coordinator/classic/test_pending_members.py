"""Member ids that are given out before a client joins (KIP-394, G24), and what is kept of those that never come."""

from ottla.coordinator.events import OffsetToCommit
from ottla.coordinator.facts import Cause, PendingMemberDropped
from ottla.coordinator.group_context import PENDING_MEMBERS_BYTES, TRACELESS_GROUPS_BYTES, GroupConfig
from ottla.coordinator.oldest_first import ENTRY_BYTES
from ottla.coordinator.results import JoinResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell


def refused(error: ErrorCode, member_id: str = "") -> JoinResult:
    return JoinResult(error, member_id)


def test_a_new_member_first_gets_an_id_from_its_client_id(shell: Shell) -> None:
    """G24"""
    client = shell.client("app", knows_member_ids=True)

    answer = shell.send(client.join_event(shell.token()))

    assert answer == refused(ErrorCode.MEMBER_ID_REQUIRED, "app-0001")
    assert shell.state() == "Empty"
    client.member_id = answer.member_id
    assert client.join() is None
    assert shell.state() == "PreparingRebalance"
    assert shell.group().pending_members == {}
    shell.advance(0)
    assert client.joined.member_id == "app-0001"


def test_a_promised_id_expires_with_its_session_timeout(shell: Shell) -> None:
    """G24"""
    client = shell.client("app", knows_member_ids=True, session_timeout_ms=6_000)
    client.member_id = shell.send(client.join_event(shell.token())).member_id

    shell.advance(5_999)
    assert "app-0001" in shell.group().pending_members
    shell.advance(1)

    assert shell.group().pending_members == {}
    assert shell.timers == {}
    assert client.join() == refused(ErrorCode.UNKNOWN_MEMBER_ID, "app-0001")


def test_a_promised_id_belongs_to_no_static_member(shell: Shell) -> None:
    """G24"""
    client = shell.client("app", knows_member_ids=True)
    member_id = shell.send(client.join_event(shell.token())).member_id
    answer = client.join(member_id=member_id, group_instance_id="instance")
    assert answer == refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id)


def test_older_clients_and_static_members_are_let_in_at_once(shell: Shell) -> None:
    """G24"""
    assert shell.client("old").join() is None
    assert shell.client("static", instance_id="instance", knows_member_ids=True).join() is None
    assert list(shell.group().members) == ["old-0001", "instance-0002"]


def test_new_member_that_never_returns_goes_after_five_minutes() -> None:
    """§8.6"""
    shell = Shell(GroupConfig(group_initial_rebalance_delay_ms=1_000))
    first, ghost = shell.client("c1", rebalance_timeout_ms=600_000), shell.client("c2", rebalance_timeout_ms=600_000)
    first.join()
    shell.advance(1_000)
    first.sync_all([first])
    ghost.join()
    for _ in range(299):
        shell.advance(1_000)
        assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert ghost.joined is None

    shell.advance(1_000)

    assert ghost.joined == refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert list(shell.group().members) == [first.member_id]


# Floods of names


def ask_for_ids(shell: Shell, count: int) -> list[Client]:
    """Each for a group of its own with a long name, of which nothing more is heard."""
    clients = [shell.client("app", group_id=f"{number:030}" * 1000, knows_member_ids=True) for number in range(count)]
    for client in clients:
        client.member_id = shell.send(client.join_event(shell.token())).member_id
    return clients


TOO_MANY = PENDING_MEMBERS_BYTES // 30_000


def test_of_too_many_promised_ids_the_oldest_is_forgotten(shell: Shell) -> None:
    """Those with long names take more room; one that comes back is refused, and asks for another id."""
    first, *_, last = ask_for_ids(shell, TOO_MANY)

    assert {fact.cause for fact in shell.facts_of(PendingMemberDropped)} == {Cause.TOO_MANY_PENDING}
    pending = sum(len(group.pending_members) for group in shell.partition.shard.groups.values())
    assert pending == len(shell.timers)
    assert TOO_MANY - 10 < pending < TOO_MANY
    assert first.join() == refused(ErrorCode.UNKNOWN_MEMBER_ID, first.member_id)
    assert last.join() is None


def test_forgotten_ids_keep_no_join_phase_waiting(shell: Shell) -> None:
    """It has waited for the member that was promised an id."""
    (member,) = shell.stable_group("first")
    promised = shell.client("second", knows_member_ids=True)
    shell.send(promised.join_event(shell.token()))
    assert member.join() is None

    ask_for_ids(shell, TOO_MANY)

    assert member.joined.generation == 2


def test_groups_that_nothing_is_stored_of_do_not_pile_up(shell: Shell) -> None:
    """Kafka keeps them until it looks for expired offsets."""
    asked = range(2 * TRACELESS_GROUPS_BYTES // ENTRY_BYTES)
    for number in asked:
        answer = shell.client("c", group_id=f"group-{number}", protocols=()).join()
        assert answer == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    groups = list(shell.partition.shard.groups)
    assert groups[-1] == f"group-{asked[-1]}"
    assert TRACELESS_GROUPS_BYTES // (2 * ENTRY_BYTES) < len(groups) < TRACELESS_GROUPS_BYTES // ENTRY_BYTES


def test_a_group_with_a_member_outlives_a_flood_of_others(shell: Shell) -> None:
    """It began as one that had none."""
    member = shell.client("c", group_id="kept")
    assert member.join(protocols=()) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert member.join() is None
    for number in range(2 * TRACELESS_GROUPS_BYTES // ENTRY_BYTES):
        shell.client("c", group_id=f"group-{number}", protocols=()).join()

    assert shell.group("kept").members


def test_groups_of_members_that_never_came_do_not_pile_up(shell: Shell) -> None:
    ask_for_ids(shell, TOO_MANY // 2)
    assert len(shell.partition.shard.groups) == TOO_MANY // 2

    shell.advance(10_000)

    assert shell.timers == {}
    assert 0 < len(shell.partition.shard.groups) <= TRACELESS_GROUPS_BYTES // 30_000


def test_groups_whose_commits_are_all_refused_do_not_pile_up(shell: Shell) -> None:
    """As in Kafka they are there, though nothing of them can be stored."""
    too_long = (OffsetToCommit("t", 0, 1, metadata="x" * 5_000),)
    for number in range(2 * TRACELESS_GROUPS_BYTES // ENTRY_BYTES):
        result = shell.commit(1, group_id=f"group-{number}", offsets=too_long)
        assert result.partitions[0].error is ErrorCode.OFFSET_METADATA_TOO_LARGE

    groups = shell.partition.shard.groups
    assert TRACELESS_GROUPS_BYTES // (2 * ENTRY_BYTES) < len(groups) < TRACELESS_GROUPS_BYTES // ENTRY_BYTES
