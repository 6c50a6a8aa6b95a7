"""Groups do not wait for one another (G28), and large ones do not hold up the rest."""

import gc
import time

import pytest

from ottla.coordinator.events import Heartbeat
from ottla.coordinator.runtime.partition import CoordinatorPartition
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import NO_DELAY, Client, Shell

STEP_BUDGET_S = 0.050


def test_requests_of_a_group_are_handled_in_order_of_arrival(shell: Shell) -> None:
    """G28"""
    leader, follower = shell.stable_group("c1", "c2")
    shell.hold_appends = True
    follower.commit(1)
    leader.join()
    follower.commit(2)
    follower.join()
    assert follower.joined.generation == 2
    shell.complete_append()
    shell.complete_append()
    assert shell.committed() == 2


def test_thousand_groups_rebalance_at_once(shell: Shell) -> None:
    """G28: Of every group the leader's store hangs but for one, which becomes Stable all the same."""
    leaders: list[Client] = []
    for index in range(1_000):
        leader, follower = (shell.client(f"c{n}", group_id=f"g{index}") for n in (1, 2))
        leader.join()
        follower.join()
        leaders.append(leader)
    shell.advance(0)
    shell.hold_appends = True
    for leader in leaders:
        assert leader.joined.generation == 1
        leader.sync()
    assert len(shell.held) == 1_000

    shell.complete_append(700)

    states = [shell.group(f"g{index}").state for index in range(1_000)]
    assert states.count("Stable") == 1
    assert leaders[699].synced.error is ErrorCode.NONE


@pytest.fixture
def no_collector():
    """A full collection looks at everything the test session has made; that is not the coordinator's time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_thousand_members_join_one_group_and_no_step_is_long(monkeypatch) -> None:
    """No step over 50 ms, in processor time, so that a busy machine does not fail the test; a tenth is usual."""
    shell = Shell(NO_DELAY)
    longest = 0.0
    step = CoordinatorPartition.step

    def timed_step(*arguments):
        nonlocal longest
        started = time.thread_time()
        effects = step(*arguments)
        longest = max(longest, time.thread_time() - started)
        return effects

    monkeypatch.setattr(CoordinatorPartition, "step", timed_step)
    clients = [shell.client(f"c{index}") for index in range(1_000)]
    clients[0].join()
    shell.advance(0)
    for client in clients[1:]:
        client.join()
    assert clients[0].joined.generation == 1
    clients[0].join()
    for client in clients[1:]:
        assert client.joined.generation == 2
        client.sync()
    clients[0].sync_all(clients)

    assert [client.synced.assignment for client in clients] == [client.name.encode() for client in clients]
    assert longest < STEP_BUDGET_S, f"a step took {longest * 1000:.1f} ms"


@pytest.mark.usefixtures("no_collector")
def test_a_heartbeat_costs_a_few_microseconds() -> None:
    """A bound against accidents (a scan, a timer per heartbeat), not a benchmark: twenty times what it takes."""
    shell = Shell(NO_DELAY)
    clients = shell.stable_group(*(f"c{index}" for index in range(200)))
    member_id = clients[0].joined.member_id
    event = Heartbeat(1, "g", member_id, None, 1)
    step = shell.partition.step
    started = time.thread_time()
    for now_ms in range(2_000):
        step(event, now_ms, now_ms)
    assert (time.thread_time() - started) / 2_000 < 40e-6
