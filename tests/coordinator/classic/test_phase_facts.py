"""What members did in the two phases of a rebalance, and when, so that a slow one can be named."""

from ottla.coordinator.facts import GenerationCompleted, MemberAssigned, MemberRejoined, MemberSynced, RebalanceStarted
from tests.coordinator.harness import CONSUMER, Client, Shell, subscription


def rejoined(shell: Shell) -> list[tuple[str, int, int]]:
    return [(fact.client_id, fact.generation, fact.join_phase_ms) for fact in shell.facts_of(MemberRejoined)]


def rebalanced(shell: Shell, slow_ms: int) -> tuple[Client, Client]:
    """c1 asks for a new assignment, c2 follows `slow_ms` later."""
    leader, follower = shell.stable_group("c1", "c2")
    leader.join()
    shell.advance(slow_ms)
    follower.join(reason="asked to rejoin")
    return leader, follower


def test_every_rejoin_has_the_time_since_the_join_phase_began(shell: Shell) -> None:
    rebalanced(shell, 3000)

    assert rejoined(shell) == [("c1", 1, 0), ("c2", 1, 3000)]
    assert [type(fact) for _, fact in shell.facts][:1] == [MemberRejoined], "reported before the rebalance it starts"
    assert len(shell.facts_of(RebalanceStarted)) == 1


def test_a_rejoin_carries_who_and_what_it_says_of_itself(shell: Shell) -> None:
    _, follower = rebalanced(shell, 0)

    last = shell.facts_of(MemberRejoined)[-1]
    assert (last.member_id, last.client_host, last.client_reason) == (
        follower.member_id,
        "/c2.example",
        "asked to rejoin",
    )
    assert (last.protocol_type, last.subscription) == (CONSUMER, subscription("t"))


def test_a_join_that_is_answered_at_once_is_no_rejoin(shell: Shell) -> None:
    _, follower = shell.stable_group("c1", "c2")
    assert follower.join() is not None
    assert rejoined(shell) == []


def test_first_sync_of_each_member_is_reported_with_its_time(shell: Shell) -> None:
    leader, follower = rebalanced(shell, 0)
    assert leader.joined.generation == follower.joined.generation == 2
    shell.advance(200)
    follower.sync()
    shell.advance(300)
    leader.sync_all([leader, follower])
    follower.sync()

    synced = [(fact.member_id, fact.is_leader, fact.sync_phase_ms) for fact in shell.facts_of(MemberSynced)]
    assert synced == [(follower.member_id, False, 200), (leader.member_id, True, 500)]


def test_assignments_are_reported_before_generation_completes(shell: Shell) -> None:
    leader, follower = rebalanced(shell, 0)
    assert leader.joined.generation == follower.joined.generation
    leader.sync_all([leader, follower])

    kinds = [type(fact) for _, fact in shell.facts if isinstance(fact, MemberAssigned | GenerationCompleted)]
    assert kinds == [MemberAssigned, MemberAssigned, GenerationCompleted]
    assert [(fact.member_id, fact.assignment) for fact in shell.facts_of(MemberAssigned)] == [
        (leader.member_id, b"c1"),
        (follower.member_id, b"c2"),
    ]
