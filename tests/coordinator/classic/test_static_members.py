"""Static members (G25, §7.2)."""

import pytest

from ottla.coordinator.facts import Cause, RebalanceStarted, StaticMemberReplaced, StaticMemberRestored
from ottla.coordinator.results import JoinResult, SyncResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell, subscription


@pytest.fixture
def pair(shell: Shell) -> tuple[Client, Client]:
    """A leader and a follower of a Stable group, both static."""
    leader = shell.client("c1", instance_id="a")
    follower = shell.client("c2", instance_id="b")
    leader.join()
    follower.join()
    shell.advance(0)
    leader.sync_all([leader, follower])
    follower.sync()
    shell.facts.clear()
    return leader, follower


def restarted(client: Client, **settings: object) -> Client:
    """The same instance after a restart: it remembers nothing but its instance id."""
    return client.shell.client(client.name, instance_id=client.instance_id, **settings)


def test_static_restart_keeps_assignment_without_rebalance(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    _, follower = pair
    again = restarted(follower)

    again.join()

    assert again.joined == JoinResult(ErrorCode.NONE, "b-0003", 1, "consumer", "range", pair[0].member_id)
    assert again.sync().assignment == b"c2"
    assert shell.states() == []
    assert shell.facts_of(StaticMemberReplaced) == [
        StaticMemberReplaced(
            group_id="g", generation=1, group_instance_id="b", old_member_id="b-0002", new_member_id="b-0003"
        )
    ]
    assert [member.member_id for member in shell.partition.shard.durable.metadata["g"].members] == ["a-0001", "b-0003"]


def test_second_with_the_same_instance_id_fences_the_first(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    _, follower = pair
    restarted(follower).join()

    assert follower.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert follower.sync().error is ErrorCode.FENCED_INSTANCE_ID
    assert follower.commit(1) is ErrorCode.FENCED_INSTANCE_ID
    assert follower.join().error is ErrorCode.FENCED_INSTANCE_ID
    assert follower.leave() is ErrorCode.FENCED_INSTANCE_ID


def test_old_client_that_led_does_not_learn_that_it_leads(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    again = restarted(pair[0])
    again.join()
    assert again.joined.leader_id == "a-0001"
    assert again.joined.member_id == "a-0003"
    assert again.joined.members == ()
    assert not again.joined.skip_assignment
    assert shell.group().leader_id == "a-0003"


def test_replaced_leader_still_leads_and_skips_the_assignment(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    again = restarted(pair[0], skips_assignment=True)
    again.join()
    assert (again.joined.leader_id, again.joined.skip_assignment) == ("a-0003", True)
    assert [member.group_instance_id for member in again.joined.members] == ["a", "b"]


def test_a_new_client_that_follows_has_nothing_to_skip(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    again = restarted(pair[1], skips_assignment=True)
    again.join()
    assert (again.joined.leader_id, again.joined.skip_assignment, again.joined.members) == ("a-0001", False, ())


def test_the_answer_waits_for_the_log(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    shell.hold_appends = True
    again = restarted(pair[1])
    assert again.join() is None
    shell.complete_append()
    assert again.joined.error is ErrorCode.NONE


def test_replacement_that_changes_the_protocol_rebalances(shell: Shell) -> None:
    """G25"""
    both = (("range", b"1"), ("sticky", b"2"))
    leader = shell.client("c1", instance_id="a", protocols=both)
    follower = shell.client("c2", protocols=both)
    leader.join()
    follower.join()
    shell.advance(0)
    leader.sync_all([leader, follower])
    follower.sync()

    again = restarted(leader, protocols=(("sticky", b"2"),))
    assert again.join() is None

    assert shell.states()[-1] == "PreparingRebalance"
    assert shell.facts_of(RebalanceStarted)[-1].cause is Cause.STATIC_MEMBER_REPLACED
    follower.join()
    assert again.joined.protocol_name == follower.joined.protocol_name == "sticky"


def test_replacement_while_completing_fences_and_rebalances(shell: Shell) -> None:
    """G25"""
    leader, follower = shell.client("c1", instance_id="a"), shell.client("c2", instance_id="b")
    leader.join()
    follower.join()
    shell.advance(0)
    follower.sync()

    again = restarted(follower)
    assert again.join() is None

    assert follower.synced == SyncResult(ErrorCode.FENCED_INSTANCE_ID)
    assert shell.states()[-1] == "PreparingRebalance"


def test_replacement_while_preparing_fences_and_waits(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    leader, follower = pair
    shell.client("c3").join()
    follower.join()

    again = restarted(follower)
    assert again.join() is None

    assert follower.joined == JoinResult(ErrorCode.FENCED_INSTANCE_ID, "b-0002")
    leader.join()
    assert again.joined.generation == 2


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])
def test_a_replacement_that_is_not_stored_is_undone(
    shell: Shell, pair: tuple[Client, Client], error: ErrorCode
) -> None:
    """G25: §7.2.3: the old protocols come back, not the new ones."""
    leader, _ = pair
    shell.fail_appends = error
    again = restarted(leader, protocols=(("range", subscription("other")),), session_timeout_ms=50_000)

    again.join()

    assert again.joined == JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    member = shell.group().members["a-0001"]
    assert member.protocols == leader.protocols
    assert member.session_timeout_ms == leader.session_timeout_ms
    assert shell.group().leader_id == "a-0001"
    assert [fact.member_id for fact in shell.facts_of(StaticMemberRestored)] == ["a-0001"]
    assert leader.heartbeat() is ErrorCode.NONE
    assert sorted(key.member_id for key in shell.timers) == ["a-0001", "b-0002"]


def test_a_replacement_overtaken_by_the_next_is_fenced(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    shell.hold_appends = True
    first, second = restarted(pair[1]), restarted(pair[1])
    first.join()
    second.join()

    shell.complete_append()
    shell.complete_append()

    assert first.joined == JoinResult(ErrorCode.FENCED_INSTANCE_ID, "")
    assert second.joined.member_id == "b-0004"


def test_replacement_stays_once_the_group_has_changed(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25: Others may have joined with what only the newcomer supports."""
    shell.hold_appends = True
    again = restarted(pair[1], protocols=(("range", b"1"), ("sticky", b"2")))
    again.join()
    newcomer = shell.client("c3")
    newcomer.join()

    shell.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert again.joined == JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert shell.group().static_members["b"] == "b-0003"
    again.join()
    pair[0].join()
    assert again.joined.generation == newcomer.joined.generation == 2


def test_member_removed_during_its_replacement_is_unknown(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    shell.hold_appends = True
    again = restarted(pair[1])
    again.join()
    assert restarted(pair[1], member_id="b-0003").leave() is ErrorCode.NONE

    shell.complete_append()

    assert again.joined == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_a_replacement_inherits_the_duty_to_sync(shell: Shell) -> None:
    """G25"""
    leader, follower = shell.client("c1"), shell.client("c2", instance_id="b", rebalance_timeout_ms=20_000)
    leader.rebalance_timeout_ms = 20_000
    leader.session_timeout_ms = 100_000
    leader.join()
    follower.join()
    shell.advance(0)
    leader.sync_all([leader, follower])
    again = restarted(follower, session_timeout_ms=100_000)
    again.join()
    assert list(shell.group().pending_sync) == ["b-0003"]
    shell.advance(20_000)
    assert "b-0003" not in shell.group().members


def test_a_replaced_member_keeps_its_place(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25"""
    restarted(pair[0]).join()
    assert list(shell.group().members) == ["a-0003", "b-0002"]


def test_the_old_id_has_no_timer_any_more(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25: §8.1.4"""
    restarted(pair[0]).join()
    assert sorted(key.member_id for key in shell.timers) == ["a-0003", "b-0002"]


def test_static_member_that_knows_its_id_rejoins_normally(shell: Shell, pair: tuple[Client, Client]) -> None:
    """G25: §7.2.5"""
    _, follower = pair
    before = follower.joined
    assert follower.join() == before
