"""Cooperative rebalancing (G29): the coordinator hands on what members say they own and starts the second step.

The two-step protocol is the assignor's; what is asked of the coordinator is that metadata travels unchanged, that the
leader's second join starts the second rebalance, and that members may commit and go on reading in between.
"""

from ottla.coordinator.facts import Cause, RebalanceStarted
from ottla.protocol.consumer_protocol import parse_assignment, parse_subscription
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import consumer_protocol as messages
from tests.coordinator.harness import Client, Shell
from tests.fakes.consumer_protocol import build_assignment, build_subscription

PARTITIONS = (0, 1, 2)


def subscribed(owned: list[int]) -> bytes:
    owns = [messages.TopicPartition(topic="t", partitions=owned)] if owned else []
    subscription = messages.ConsumerProtocolSubscription(topics=["t"], owned_partitions=owns)
    return build_subscription(subscription, 1)


def assigned(partitions: list[int]) -> bytes:
    gives = [messages.TopicPartition(topic="t", partitions=partitions)] if partitions else []
    return build_assignment(messages.ConsumerProtocolAssignment(assigned_partitions=gives), 1)


def partitions_in(assignment: bytes) -> list[int]:
    return [index for topic in parse_assignment(assignment).assigned_partitions for index in topic.partitions]


class CooperativeClient:
    """A consumer with a cooperative-sticky assignor, as far as partitions of one topic go."""

    def __init__(self, shell: Shell, name: str) -> None:
        self.owned: list[int] = []
        self.revoked: list[int] = []
        self.client: Client = shell.client(name)

    def join(self) -> None:
        self.client.join(protocols=(("cooperative-sticky", subscribed(self.owned)),))

    def assign(self) -> dict[str, bytes]:
        """Partitions move only once their owner has given them up."""
        owners = {
            member.member_id: [
                index for topic in parse_subscription(member.metadata).owned_partitions for index in topic.partitions
            ]
            for member in self.client.joined.members
        }
        fair = -(-len(PARTITIONS) // len(owners))
        owned = {index for indexes in owners.values() for index in indexes}
        shares = {member_id: indexes[:fair] for member_id, indexes in owners.items()}
        for index in PARTITIONS:
            if index not in owned:
                min(shares.values(), key=len).append(index)
        return {member_id: assigned(indexes) for member_id, indexes in shares.items()}

    def sync(self) -> None:
        leads = self.client.joined.leader_id == self.client.joined.member_id
        self.client.sync(self.assign() if leads else None)

    def adopt(self) -> bool:
        """Take the assignment over; whether something was revoked, so that a second step is due."""
        now_owned = partitions_in(self.client.synced.assignment)
        revoked = [index for index in self.owned if index not in now_owned]
        self.revoked += revoked
        self.owned = now_owned
        return bool(revoked)


def test_cooperative_rebalance_revokes_only_partitions_that_move(shell: Shell) -> None:
    """G29"""
    c1, c2, c3 = members = [CooperativeClient(shell, name) for name in ("c1", "c2", "c3")]
    c1.join()
    shell.advance(0)
    c1.sync()
    c1.adopt()
    assert c1.owned == [0, 1, 2]

    c2.join()
    c3.join()
    assert c1.client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert c1.client.commit(5) is ErrorCode.NONE, "it goes on reading, and commits, during the rebalance"
    c1.join()
    for member in (c2, c3, c1):
        member.sync()
    second_step_due = [member.adopt() for member in members]
    assert second_step_due == [True, False, False]
    assert c1.owned == [0]

    c1.join()
    for member in (c2, c3):
        assert member.client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        member.join()
    for member in (c2, c3, c1):
        member.sync()
    assert not any(member.adopt() for member in members)

    assert sorted(index for member in members for index in member.owned) == [0, 1, 2]
    assert [len(member.owned) for member in members] == [1, 1, 1]
    assert c1.revoked == [1, 2]
    assert shell.state() == "Stable"
    assert [fact.cause for fact in shell.facts_of(RebalanceStarted)] == [
        Cause.MEMBER_JOINED,
        Cause.MEMBER_JOINED,
        Cause.LEADER_REJOINED,
    ]
