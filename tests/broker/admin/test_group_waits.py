"""What rebalances cost: waits of members and partitions without an owner, against what groups do in virtual time."""

import random
from typing import Any

import pytest

from ottla.broker.admin.metrics.group_waits import GroupWaits
from ottla.coordinator.group_context import GroupConfig
from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.schema import Message
from tests.coordinator.harness import Client, Shell


class ObservedShell(Shell):
    """Facts go to `GroupWaits`, with the time of their step; and it keeps how long each request had no answer."""

    def __init__(self, config: GroupConfig) -> None:
        self.waits = GroupWaits(0)
        self.asked_ms: dict[int, int] = {}
        self.parked_ms = 0
        super().__init__(config)

    def send(self, event: Any) -> Any:
        self.asked_ms[event.token] = self.now_ms
        return super().send(event)

    def perform(self, effects: list[Any]) -> None:
        facts, answered = len(self.facts), set(self.answers)
        super().perform(effects)
        for token in self.answers.keys() - answered:
            self.parked_ms += self.now_ms - self.asked_ms[token]
        for now_ms, fact in self.facts[facts:]:
            self.waits.observe(fact, now_ms)

    def waited(self) -> dict[str, int]:
        self.waits.charge(self.now_ms)
        return {what: waited_ms for what, waited_ms in self.waits.waited_ms.items() if waited_ms}


def versioned(message: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + bytes(encode(message, version))


def assigned(*partitions: int) -> bytes:
    topics = [TopicPartition(topic="t", partitions=list(partitions))] if partitions else []
    return versioned(ConsumerProtocolAssignment(assigned_partitions=topics), 1)


def subscribed(*owned: int) -> tuple[tuple[str, bytes], ...]:
    topics = [TopicPartition(topic="t", partitions=list(owned))] if owned else []
    return (("range", versioned(ConsumerProtocolSubscription(topics=["t"], owned_partitions=topics), 1)),)


def shell(delay_ms: int = 0) -> ObservedShell:
    return ObservedShell(GroupConfig(group_initial_rebalance_delay_ms=delay_ms))


def consuming(world: ObservedShell, **partitions: tuple[int, ...]) -> list[Client]:
    """A Stable group whose members have these partitions; it costs nothing."""
    clients = [world.client(name, protocols=subscribed()) for name in partitions]
    for client in clients:
        client.join()
    world.advance(0)
    synced(world, clients, partitions)
    return clients


def synced(world: ObservedShell, clients: list[Client], partitions: dict[str, tuple[int, ...]]) -> None:
    for client in clients:
        assert client.joined is not None
    leader = next(client for client in clients if client.joined.leader_id == client.member_id)
    for client in clients:
        if client is not leader:
            client.sync()
    leader.sync({client.member_id: assigned(*partitions[client.name]) for client in clients})
    assert world.state() == "Stable"


def test_members_wait_for_one_that_joins_late() -> None:
    world = shell()
    first, second = consuming(world, a=(0,), b=(1,))
    world.advance(1000)
    world.client("c").join()
    world.advance(2000)
    first.join()
    world.advance(3000)
    assert world.waited() == {"member": 2000}, "what the present wait is for is not known before its end"
    second.join()

    assert world.waited() == {"member": 2000 * 1 + 3000 * 2}


def test_wait_that_ends_by_a_removal_is_for_the_deadline() -> None:
    world = shell()
    first, second = consuming(world, a=(0,), b=(1,))
    world.client("c").join()
    world.advance(4000)
    first.join()
    second.heartbeat()
    for _ in range(7):
        world.advance(7000)
        assert second.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(7000)

    assert world.now_ms == second.rebalance_timeout_ms
    assert world.waited() == {"member": 4000, "deadline": 56_000 * 2}


def test_initial_delay_is_no_members_fault() -> None:
    world = shell(delay_ms=3000)
    world.client("a").join()
    world.advance(1000)
    world.client("b").join()
    world.advance(1500)
    assert world.waited() == {"initial delay": 1000 * 1 + 1500 * 2}
    world.advance(3500)

    assert world.waited() == {"initial delay": 1000 * 1 + 5000 * 2}


def test_leader_and_storing_are_waited_for_in_the_sync_phase() -> None:
    world = shell()
    first, second = consuming(world, a=(0,), b=(1,))
    second.join(protocols=subscribed(9))
    first.join()
    leader, other = (first, second) if first.joined.leader_id == first.member_id else (second, first)
    assert other.joined is not None
    world.advance(500)
    other.sync()
    world.advance(2000)
    world.hold_appends = True
    leader.sync({leader.member_id: assigned(0), other.member_id: assigned(1)})
    world.advance(700)
    world.complete_append()
    world.advance(5000)

    assert world.waited() == {"leader": 2000, "storing": 2 * 700}


@pytest.mark.parametrize("seed", range(15))
def test_waits_sum_to_how_long_requests_were_parked(seed: int) -> None:
    rng = random.Random(seed)
    world = shell(delay_ms=rng.choice((0, 3000)))
    clients = [world.client(name, session_timeout_ms=20_000, rebalance_timeout_ms=30_000) for name in "abcd"]
    clients += [world.client("s", instance_id="s", session_timeout_ms=20_000, rebalance_timeout_ms=30_000)]
    for _ in range(80):
        client = rng.choice(clients)
        match rng.choice(("join", "join", "sync", "sync", "restart", "leave", "heartbeat")):
            case "join":
                client.join(protocols=subscribed(rng.randrange(3)))
            case "sync" if client.join_tokens and client.joined is not None:
                client.sync({each.member_id: assigned(1) for each in clients if each.member_id})
            case "restart":
                client.member_id = ""
            case "leave" if client.member_id:
                client.leave()
            case "heartbeat" if client.member_id:
                client.heartbeat()
        world.advance(rng.choice((0, 100, 2000, 7000)))
    world.advance(300_000)

    assert sum(world.waited().values()) == world.parked_ms > 0


def test_eager_members_give_up_partitions_as_they_join() -> None:
    world = shell()
    first, second = consuming(world, a=(0, 1), b=(2,))
    world.advance(5000)
    world.client("c", protocols=subscribed()).join()
    second.join(protocols=subscribed())
    world.advance(1000)
    world.waits.charge(world.now_ms)
    assert world.waits.unowned_ms == 1000 * 1
    first.join(protocols=subscribed())
    world.advance(2000)
    world.waits.charge(world.now_ms)

    assert world.waits.unowned_ms == 1000 * 1 + 2000 * 3


def test_partitions_that_cooperative_members_keep_have_an_owner() -> None:
    world = shell()
    first, second = consuming(world, a=(0, 1), b=(2,))
    third = world.client("c", protocols=subscribed())
    third.join()
    world.advance(1000)
    first.join(protocols=subscribed(0, 1))
    second.join(protocols=subscribed(2))
    world.advance(2000)
    synced(world, [first, second, third], {"a": (0,), "b": (2,), "c": ()})
    # Partition 1 is given up in this generation, and given to another member in the next.
    world.advance(400)
    first.join(protocols=subscribed(0))
    second.join(protocols=subscribed(2))
    third.join(protocols=subscribed())
    world.advance(100)
    synced(world, [first, second, third], {"a": (0,), "b": (2,), "c": (1,)})
    world.advance(9000)
    world.waits.charge(world.now_ms)

    assert world.waits.unowned_ms == 400 + 100


def test_expired_member_was_silent_with_its_partitions() -> None:
    world = shell()
    first, second = consuming(world, a=(0, 1), b=(2, 3, 4))
    for _ in range(9):
        world.advance(1000)
        first.heartbeat()
    world.advance(1500)
    world.waits.charge(world.now_ms)

    assert second.session_timeout_ms == 10_000
    assert world.waits.silent_ms == 10_000 * 3
    assert world.waits.unowned_ms == 500 * 3


def test_empty_group_has_no_partitions_that_lack_an_owner() -> None:
    world = shell()
    (only,) = consuming(world, a=(0, 1))
    only.leave()
    world.advance(60_000)
    world.waits.charge(world.now_ms)

    assert world.waits.unowned_ms == 0
