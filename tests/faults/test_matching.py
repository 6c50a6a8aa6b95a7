"""Which requests a rule acts on, and what it remembers of those it did not."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.testing.faults.calls import FaultCall
from ottla.testing.faults.matching import VALUES_KEPT
from ottla.testing.faults.state import COUNTED_APART_MAX, HITS_KEPT, FaultState
from tests.faults.plain_routes import APIS_BY_NAME, Connection, Parts, Route, context_of, state_of

PLAIN = Route(APIS_BY_NAME["Produce"], 9, lambda context, request: None)


def produce(*partitions: tuple[str, int]) -> ProduceRequest:
    return ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index)])
            for name, index in partitions
        ],
    )


class World:
    """Requests to a rule, one after the other."""

    def __init__(self, match: dict[str, Any], seed: int = 0, **rule: Any) -> None:
        self.parts: Any = Parts()
        given = {"match": {"api": "Produce", **match}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": "unlimited"}
        self.state: FaultState = state_of({**given, **rule}, seed)
        self.state.begin(self.parts)
        self._connections = {number: Connection(number) for number in (1, 2)}

    def hit(self, *partitions: tuple[str, int], connection: int = 1) -> list[tuple[Any, ...]] | None:
        """The units that it acts on."""
        context = context_of(PLAIN, self._connections[connection])
        units = self.state.take(FaultCall(self.parts, PLAIN, context, produce(*partitions)), self.parts, set())
        return None if units is None else [tuple(unit.values.values()) for unit in units]


def test_all_fields_hold_for_one_partition() -> None:
    world = World({"topic": "orders", "partition": 1})

    assert world.hit(("orders", 1), ("orders", 0), ("payments", 1)) == [("orders", 1)]
    assert world.hit(("orders", 0), ("payments", 1)) is None


@pytest.mark.parametrize(
    ("match", "hits"),
    [
        ({"topic": "order*"}, True),
        ({"topic": "orde"}, False),
        ({"topic": "order?"}, True),
        ({"topic": "/RDER/"}, False),
        ({"topic": "/rder/"}, True),
        ({"topic": ["a", "orders"]}, True),
        ({"client_id": "billing-*"}, True),
        ({"client_id": "billing"}, False),
        ({"acks": [0, 1]}, True),
        ({"acks": -1}, False),
        ({"node": 0}, True),
        ({"node": 2}, False),
        ({"connection": 1}, True),
        ({"connection": 2}, False),
        ({"principal": "User:ANONYMOUS"}, True),
        ({"listener": "SSL"}, False),
        ({"address": "127.*"}, True),
        ({"software": "librdkafka"}, False),
        ({"peer": "broker"}, False),
        ({"version": "9-12"}, True),
        ({"when": lambda request: request.body.acks == 1}, True),
        ({"when": lambda request: request.client_id == "x"}, False),
    ],
)
def test_field_matches_or_not(match: dict[str, Any], hits: bool) -> None:
    assert (World(match).hit(("orders", 0)) is not None) == hits


@pytest.mark.parametrize(
    ("nth", "turns"),
    [(3, {3}), ([1, 4], {1, 4}), ("2-4", {2, 3, 4}), ("every 3", {3, 6, 9}), ([1, "every 4"], {1, 4, 8})],
)
def test_nth_counts_requests_that_match_in_all_else(nth: Any, turns: set[int]) -> None:
    world = World({"topic": "orders", "nth": nth})
    found: set[int] = set()

    for count in range(1, 11):
        assert world.hit(("payments", 0)) is None
        if world.hit(("orders", 0), ("orders", 1)) is not None:
            found.add(count)

    assert found == turns


@given(st.lists(st.tuples(st.sampled_from(["orders", "payments"]), st.integers(1, 5)), max_size=40), st.integers(1, 6))
def test_times_is_a_budget_of_requests(requests: list[tuple[str, int]], times: int) -> None:
    """Against a dumb model: so many requests, however many partitions each has."""
    world = World({"topic": "orders"}, times=times)
    left = times

    for topic, partitions in requests:
        hit = world.hit(*((topic, index) for index in range(partitions)))
        expected = [(topic, index) for index in range(partitions)] if topic == "orders" and left else None
        assert hit == expected
        left -= expected is not None

    assert world.state.hits == times - left
    assert world.state.is_exhausted == (left == 0)


def test_nth_of_counts_connections_and_partitions_apart() -> None:
    by_connection = World({"nth": 2, "nth_of": "connection"})
    by_partition = World({"nth": 2, "nth_of": "partition"})

    assert [by_connection.hit(("t", 0), connection=each) is not None for each in (1, 2, 1, 2, 2)] == [
        False, False, True, True, False,
    ]  # fmt: skip
    assert by_partition.hit(("t", 0)) is None
    assert by_partition.hit(("t", 0), ("t", 1)) == [("t", 0)]
    assert by_partition.hit(("t", 0), ("t", 1)) == [("t", 1)]


def test_rule_begins_and_ends_by_durations_and_broker_times() -> None:
    world = World({"after": "100ms", "until": "300ms"})
    at = World({"after": "2023-11-14T22:13:22+00:00"})
    clock, wall = world.parts.runtime.broker_clock, at.parts.runtime.broker_clock

    found: list[int] = []
    for now_ms in range(1000, 1401, 50):
        clock.ms = now_ms
        if world.hit(("t", 0)):
            found.append(now_ms - 1000)
    assert found == [100, 150, 200, 250]
    assert at.hit(("t", 0)) is None
    wall.ms = 2000
    assert at.hit(("t", 0)) is not None


def test_chance_follows_from_the_seed_and_the_rule_alone() -> None:
    def hits(seed: int, rule_id: str, disturb: bool = False) -> list[bool]:
        world = World({"probability": 0.5}, seed, id=rule_id)
        found: list[bool] = []
        for _ in range(64):
            if disturb:
                Random().random()
                __import__("random").random()
            found.append(world.hit(("t", 0)) is not None)
        return found

    assert hits(1, "a") == hits(1, "a", disturb=True)
    assert hits(1, "a") != hits(2, "a")
    assert hits(1, "a") != hits(1, "b")
    assert 10 < sum(hits(1, "a")) < 54


def test_near_miss_names_the_one_field_that_was_different() -> None:
    world = World({"topic": "order", "client_id": "billing-1"})

    for _ in range(12):
        world.hit(("orders", 0))
    other = World({"topic": "order", "client_id": "x"})
    other.hit(("orders", 0))

    assert world.state.explain() == (
        "'rule' ({api: Produce, topic: order, client_id: billing-1} → error) never hit:"
        " 12 requests matched all but topic: 'orders' ≠ 'order'"
    )
    assert other.state.near_misses() == {}


def test_rule_that_saw_no_request_says_so() -> None:
    assert World({}).state.explain().endswith("never hit: no Produce request came that it could match")


def test_what_a_rule_remembers_is_bounded() -> None:
    world = World({})
    missed = World({"topic": "never"})
    counted = World({"nth": 2, "nth_of": "partition"})

    for number in range(COUNTED_APART_MAX + 500):
        world.hit(("t", number))
        missed.hit((f"topic-{number}", 0))
        counted.hit(("t", number))

    assert world.state.hits == COUNTED_APART_MAX + 500
    assert len(world.state.hit_log) == HITS_KEPT
    (matcher,) = missed.state._matchers.values()
    assert len(matcher.near_misses.values["topic"]) == VALUES_KEPT
    assert matcher.near_misses.counts == {"topic": COUNTED_APART_MAX + 500}
    assert len(counted.state._counted) == COUNTED_APART_MAX


def test_hits_are_logged_with_who_and_what() -> None:
    world = World({})
    world.hit(("orders", 3))

    (hit,) = world.state.hit_log
    assert (hit.api, hit.version, hit.client_id, hit.connection, hit.correlation_id) == (
        "Produce",
        9,
        "billing-1",
        1,
        7,
    )
    assert (hit.action, hit.units, hit.broker_ms) == ("error", ("orders-3",), 1000)


def test_durations_count_from_the_reset() -> None:
    world = World({"after": "100ms", "until": "300ms"})
    clock = world.parts.runtime.broker_clock
    clock.ms += 250
    world.state.reset()

    found = list[int]()
    for _ in range(8):
        if world.hit(("t", 0)):
            found.append(clock.ms - 1250)
        clock.ms += 50
    assert found == [100, 150, 200, 250]


def test_reset_forgets_hits_counts_and_chance() -> None:
    world = World({"nth": 2})
    first = [world.hit(("t", 0)) is not None for _ in range(3)]
    world.state.reset()

    assert [world.hit(("t", 0)) is not None for _ in range(3)] == first == [False, True, False]
    assert world.state.hits == 1
