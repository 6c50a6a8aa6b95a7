"""The scenarios G08–G29 that real clients can be brought into, with the broker's own facts as witness.

`pytest -s tests/clients/test_group_scenarios.py --show-timeline` prints the timeline of states of each group.
"""

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from benchmarks.raw_client import RawClient, create_topic, join_request
from ottla import BrokerThread
from ottla.coordinator.facts import MemberJoined
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.join_group import JoinGroupResponse
from tests.clients.group_watch import WAIT_S, Member, Timeline
from tests.fakes.consumer_protocol import build_subscription

TOPIC = "t"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


class Stage:
    """A broker in this process, the timeline of one group, and the members that the test brought on."""

    def __init__(self, broker: BrokerThread, timeline: Timeline) -> None:
        self.broker = broker
        self.timeline = timeline
        self.members: list[Member] = []

    def create_topic(self) -> None:
        """Before anybody joins: a topic that appears later would be a reason to rebalance."""
        client = self.client()
        create_topic(client, TOPIC, partitions=3)
        client.close()

    def client(self) -> RawClient:
        return RawClient(int(self.broker.bootstrap.rsplit(":", 1)[1]))

    def member(self, *, start: bool = True, **settings: object) -> Member:
        member = Member(self.broker.bootstrap, TOPIC, self.timeline.group_id, start=start, **settings)
        self.members.append(member)
        return member

    def wait_for_generation(self, generation: int) -> None:
        """Until it is stable at the broker; its members may not know their shares."""
        self.timeline.wait_until(lambda: generation in self.timeline.stable_generations())

    def has_shared_out(self) -> bool:
        """Every partition is owned, and every member knows its share in the generation that it joined last."""
        shares = [member.owned for member in self.members]
        return sum(map(len, shares)) == 3 and set().union(*shares) == {0, 1, 2} and all(shares)

    def close_members(self) -> None:
        for member in self.members:
            member.close()


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    timeline = Timeline("g")
    with BrokerThread(settings=SETTINGS, observers=[timeline]) as broker:
        stage = Stage(broker, timeline)
        stage.create_topic()
        yield stage
        stage.close_members()
    if request.config.getoption("--show-timeline"):
        print(f"\n{timeline}")


def eventually(condition: Callable[[], bool], poll: threading.Event, what: str) -> None:
    """For what only a client knows: asks again every few milliseconds, for as long as a test may take."""
    for _ in range(WAIT_S * 50):
        if condition():
            return
        poll.wait(0.02)
    raise AssertionError(f"it did not come to that: {what}")


def test_g08_one_rebalance_for_three(stage: Stage) -> None:
    """The first leader takes its time to assign, so that the two others come before it syncs."""
    others_joined = threading.Event()

    class HesitantRange(RangePartitionAssignor):
        @classmethod
        def assign(cls, cluster: object, members: list) -> dict:
            assert others_joined.wait(WAIT_S)
            return super().assign(cluster, members)

    stage.member(partition_assignment_strategy=[HesitantRange])
    stage.timeline.wait_until(lambda: stage.timeline.sizes() == [1])
    stage.member()
    stage.member()
    stage.timeline.wait_until(lambda: len(stage.timeline.of(MemberJoined)) == 3)
    others_joined.set()

    stage.wait_for_generation(2)
    eventually(stage.has_shared_out, threading.Event(), "every member has its share")

    assert stage.timeline.states() == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
    ]
    assert stage.timeline.sizes() == [1, 3]
    assert [m.assigned for m in stage.members] == [[m.owned] for m in stage.members], "assigned once each"
    assert [len(m.revoked) for m in stage.members] == [1, 1, 1]
    assert sorted(list(m.owned) for m in stage.members) == [[0], [1], [2]]


def test_g09_two_rebalances_for_three(stage: Stage) -> None:
    """The first member takes its time to let go of its partitions, so that both others join the same rebalance."""
    first = stage.member(heartbeat_interval_ms=200)
    stage.wait_for_generation(1)
    eventually(stage.has_shared_out, threading.Event(), "the first member has its share")
    first.may_let_go.clear()
    stage.member(heartbeat_interval_ms=200)
    stage.member(heartbeat_interval_ms=200)
    stage.timeline.wait_until(lambda: len(stage.timeline.of(MemberJoined)) == 3)
    first.may_let_go.set()
    stage.wait_for_generation(2)
    eventually(stage.has_shared_out, threading.Event(), "every member has its share")

    cycle = ["PreparingRebalance", "CompletingRebalance", "Stable"]
    assert stage.timeline.states() == ["Empty", *cycle, *cycle]
    assert stage.timeline.sizes() == [1, 3]
    assert [len(m.assigned) for m in stage.members] == [2, 1, 1]
    assert [len(m.revoked) for m in stage.members] == [2, 1, 1]
    assert first.assigned[0] == {0, 1, 2}
    assert sorted(list(m.owned) for m in stage.members) == [[0], [1], [2]]


def test_g10_three_rebalances_for_three(stage: Stage) -> None:
    for generation in (1, 2, 3):
        stage.member(heartbeat_interval_ms=200)
        stage.wait_for_generation(generation)
        eventually(stage.has_shared_out, threading.Event(), "every member has its share")

    cycle = ["PreparingRebalance", "CompletingRebalance", "Stable"]
    assert stage.timeline.causes() == ["member joined"] * 3
    assert stage.timeline.states() == ["Empty", *cycle * 3]
    assert stage.timeline.sizes() == [1, 2, 3]
    assert [len(m.assigned) for m in stage.members] == [3, 2, 1]
    assert [len(m.revoked) for m in stage.members] == [3, 2, 1]


def test_g05_a_fleet_that_starts_together_joins_one_generation() -> None:
    timeline = Timeline("g")
    settings = {**SETTINGS, "group.initial.rebalance.delay.ms": "1000"}
    with BrokerThread(settings=settings, observers=[timeline]) as broker:
        stage = Stage(broker, timeline)
        stage.create_topic()
        for _ in range(3):
            stage.member(start=False)
        for member in stage.members:
            member.start()
        stage.wait_for_generation(1)
        stage.close_members()

    assert timeline.sizes()[0] == 3


def test_g22_g23_members_leave_and_their_partitions_move(stage: Stage) -> None:
    leaver, stayer = stage.member(heartbeat_interval_ms=200), stage.member(heartbeat_interval_ms=200)
    stage.timeline.wait_until(lambda: 2 in stage.timeline.sizes())
    eventually(stage.has_shared_out, threading.Event(), "every member has its share")

    leaver.close()
    eventually(lambda: stayer.owned == {0, 1, 2}, threading.Event(), "all is moved")
    stayer.close()

    stage.timeline.wait_until(lambda: stage.timeline.states()[-1] == "Empty")
    assert stage.timeline.removals() == ["member left", "member left"]


def test_g19_a_silent_member_expires(stage: Stage) -> None:
    """A client whose process hangs keeps its connection and says nothing: here, a bare socket that has joined."""
    stage.member(heartbeat_interval_ms=200)
    stage.wait_for_generation(1)
    hang_up = join_and_fall_silent(stage)

    stage.timeline.wait_until(lambda: stage.timeline.causes()[-1] == "session expired")
    stage.wait_for_generation(3)
    hang_up()

    assert stage.timeline.removals() == ["session expired"]
    assert stage.timeline.causes() == ["member joined", "member joined", "session expired"]


def join_and_fall_silent(stage: Stage) -> Callable[[], None]:
    client = stage.client()
    subscription = ConsumerProtocolSubscription(topics=[TOPIC], user_data=None)
    request = join_request(stage.timeline.group_id, metadata=build_subscription(subscription, version=0))
    first = client.call(request, JoinGroupResponse, 5)
    request.member_id = first.member_id
    request.session_timeout_ms = 1500
    client.call(request, JoinGroupResponse, 5)
    return client.close


def test_g25_a_static_member_restarts_without_a_rebalance(stage: Stage) -> None:
    first = static_consumer(stage, "static-1")
    stage.wait_for_generation(1)
    first.close()

    second = static_consumer(stage, "static-1")
    poll = threading.Event()
    eventually(lambda: bool(second.poll(0.02) or second.assignment()), poll, "the static member has its partitions")

    assert {p.partition for p in second.assignment()} == {0, 1, 2}
    assert stage.timeline.stable_generations() == [1]
    second.close()


def test_g25_a_second_static_member_fences_the_first(stage: Stage) -> None:
    errors: list[str] = []
    first = static_consumer(stage, "static-1", errors)
    stage.wait_for_generation(1)
    second = static_consumer(stage, "static-1")
    poll = threading.Event()

    def fenced() -> bool:
        second.poll(0.02)
        message = first.poll(0.02)
        if message is not None and message.error() is not None:
            errors.append(message.error().name())
        return bool(errors)

    eventually(fenced, poll, "the first is fenced")

    assert "_FATAL" in errors or "FENCED_INSTANCE_ID" in errors
    first.close()
    second.close()


def static_consumer(stage: Stage, instance_id: str, errors: list[str] | None = None) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": stage.broker.bootstrap,
            "group.id": stage.timeline.group_id,
            "group.instance.id": instance_id,
            "session.timeout.ms": 20_000,
            "heartbeat.interval.ms": 200,
            "auto.offset.reset": "earliest",
            "error_cb": lambda error: None if errors is None else errors.append(error.name()),
        }
    )
    consumer.subscribe([TOPIC])
    consumer.poll(0.5)
    return consumer


def test_g29_cooperative_members_keep_what_stays(stage: Stage) -> None:
    shares: dict[str, list[tuple[str, set[int]]]] = {"one": [], "two": []}

    def cooperative(name: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": stage.broker.bootstrap,
                "group.id": stage.timeline.group_id,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 200,
            }
        )

        def note(what: str) -> Callable[[Consumer, list[TopicPartition]], None]:
            return lambda _, partitions: shares[name].append((what, {p.partition for p in partitions}))

        consumer.subscribe([TOPIC], on_assign=note("assign"), on_revoke=note("revoke"), on_lost=note("lost"))
        return consumer

    poll = threading.Event()
    one = cooperative("one")
    eventually(lambda: one.poll(0.02) is None and len(one.assignment()) == 3, poll, "one has all three")
    two = cooperative("two")

    def both_have_a_share() -> bool:
        one.poll(0.02)
        two.poll(0.02)
        return (len(one.assignment()), len(two.assignment())) in ((1, 2), (2, 1))

    eventually(both_have_a_share, poll, "both have a share")

    taken = {p.partition for p in two.assignment()}
    assert [call for call in shares["one"] if call[1]] == [("assign", {0, 1, 2}), ("revoke", taken)]
    assert [call for call in shares["two"] if call[1]] == [("assign", taken)]
    one.close()
    two.close()
