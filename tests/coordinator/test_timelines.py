"""One, two or three rebalances for three consumers, and join answers that got lost (G08-G12).

`pytest --show-timeline` prints what the groups went through.
"""

from collections.abc import Callable

from ottla.coordinator.facts import GenerationStarted, RebalanceStarted
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell

CYCLE = ["PreparingRebalance", "CompletingRebalance", "Stable"]


def assert_share(clients: list[Client], generation: int) -> None:
    """All are in the generation and hold what the leader gave them, and no more."""
    for client in clients:
        assert client.generation == generation
        assert client.synced.assignment == client.name.encode()
        assert client.heartbeat() is ErrorCode.NONE


def rejoin(shell: Shell, clients: list[Client]) -> None:
    """What clients do when a heartbeat says that the group rebalances."""
    for client in clients:
        assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        client.join()


def sync(clients: list[Client]) -> None:
    for client in clients[1:]:
        assert client.joined is not None
        client.sync()
    clients[0].sync_all(clients)


def test_three_join_together_and_rebalance_once(shell: Shell, show_timeline: Callable[[Shell], None]) -> None:
    """G08"""
    c1, c2, c3 = clients = [shell.client(name) for name in ("c1", "c2", "c3")]
    c1.join()
    shell.advance(1)
    assert c1.joined.generation == 1

    c2.join()
    c3.join()
    assert c1.sync_all([c1]).error is ErrorCode.REBALANCE_IN_PROGRESS
    c1.join()
    sync(clients)

    assert shell.states() == ["Empty", "PreparingRebalance", "CompletingRebalance", *CYCLE]
    assert [len(client.join_tokens) for client in clients] == [2, 1, 1]
    assert_share(clients, generation=2)
    assert [len(fact.member_ids) for fact in shell.facts_of(GenerationStarted)] == [1, 3]
    show_timeline(shell)


def test_two_join_a_stable_one_and_rebalance_twice(shell: Shell, show_timeline: Callable[[Shell], None]) -> None:
    """G09"""
    c1, c2, c3 = clients = [shell.client(name) for name in ("c1", "c2", "c3")]
    c1.join()
    shell.advance(1)
    sync([c1])
    shell.advance(1_000)

    c2.join()
    c3.join()
    rejoin(shell, [c1])
    sync(clients)

    assert shell.states() == ["Empty", *CYCLE, *CYCLE]
    assert [len(client.sync_tokens) for client in clients] == [2, 1, 1]
    assert_share(clients, generation=2)
    show_timeline(shell)


def test_one_after_the_other_and_rebalance_three_times(shell: Shell, show_timeline: Callable[[Shell], None]) -> None:
    """G10"""
    clients: list[Client] = []
    for name in ("c1", "c2", "c3"):
        newcomer = shell.client(name)
        newcomer.join()
        shell.advance(1)
        rejoin(shell, clients)
        clients.append(newcomer)
        sync(clients)
        shell.advance(1_000)

    assert shell.states() == ["Empty", *CYCLE, *CYCLE, *CYCLE]
    assert [len(client.sync_tokens) for client in clients] == [3, 2, 1]
    assert_share(clients, generation=3)
    assert [fact.member_id for fact in shell.facts_of(RebalanceStarted)] == [client.member_id for client in clients]
    show_timeline(shell)


def test_follower_that_lost_its_join_answer_needs_no_rebalance(shell: Shell) -> None:
    """G11"""
    c1, c2, _ = clients = [shell.client(name) for name in ("c1", "c2", "c3")]
    for client in clients:
        client.join()
    shell.advance(0)
    assert c2.joined
    c2.sync()
    c1.sync({"c1-0001": b"c1", "c2-0002": b"c2", "c3-0003": b"c3"}, generation=1, member_id=c1.joined.member_id)
    states = shell.states()
    assert states[-1] == "Stable"

    # All that c3 has is the id from MEMBER_ID_REQUIRED.
    again = shell.client("c3", member_id="c3-0003")
    again.join()

    assert again.joined.generation == 1
    assert again.sync().assignment == b"c3"
    assert shell.states() == states


def test_leader_that_lost_its_join_answer_completes_generation(shell: Shell) -> None:
    """G12"""
    clients = [shell.client(name) for name in ("c1", "c2", "c3")]
    for client in clients:
        client.join()
    shell.advance(0)
    for client in clients[1:]:
        assert client.joined
        client.sync()
    shell.advance(5_000)
    assert shell.state() == "CompletingRebalance"

    leader = shell.client("c1", member_id="c1-0001")
    leader.join()
    assert len(leader.joined.members) == 3
    leader.sync_all(clients)

    assert shell.states() == ["Empty", *CYCLE]
    assert [client.synced.assignment for client in clients[1:]] == [b"c2", b"c3"]
