"""What is left of clients that have gone is found, also beside connections of brokers that are alive."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.cluster.released import held_too_much
from tests.simulation.loop import PROCESS


class Parked:
    """A purgatory with these operations."""

    def __init__(self, operations: list[Any]) -> None:
        self._operations = operations

    def __len__(self) -> int:
        return len(self._operations)


ALIVE, GONE = "a connection between brokers", "a connection that has ended"


HERE, ELSEWHERE = (1, 2), (2, 3)


def world_with(*parked: tuple[bool, str], replicas: tuple[int, ...] = HERE) -> Any:
    """One broker with three connections of others, and these parked fetches: of a follower or not, and whose; with the
    log of a partition that has these replicas."""
    operations = [
        SimpleNamespace(is_of_follower=is_of_follower, _context=SimpleNamespace(connection=connection))
        for is_of_follower, connection in parked
    ]
    topic = SimpleNamespace(topic_id=b"id of t", partitions=[SimpleNamespace(replicas=replicas)])
    broker = SimpleNamespace(
        server=SimpleNamespace(
            connections=[ALIVE] * 3,
            memory=SimpleNamespace(held_bytes=0),
            receive_buffers=SimpleNamespace(_lent=0),
        ),
        fetch_sessions=SimpleNamespace(_of_connection={}, _sessions={}, consumers_bytes=0),
        replicas=SimpleNamespace(delayed_fetch=Parked(operations)),
        parts=SimpleNamespace(
            log_directory=SimpleNamespace(logs={("t", 0): SimpleNamespace(topic_id=b"id of t")}),
        ),
        metadata=SimpleNamespace(image=SimpleNamespace(topic=lambda name: topic)),
    )
    process = object()
    node = SimpleNamespace(node_id=1, host="broker-1", broker=broker, broker_process=process)
    near = SimpleNamespace(peer=SimpleNamespace(context={PROCESS: process}))
    return SimpleNamespace(nodes={1: node}, network=SimpleNamespace(connections=[near] * 3))


def test_fetches_of_followers_may_be_parked() -> None:
    assert held_too_much(world_with((True, ALIVE), (True, ALIVE))) == []


@pytest.mark.parametrize(
    ("parked", "found"),
    [
        ((False, ALIVE), "broker-1 has 1 parked fetches of clients"),
        ((True, GONE), "broker-1 has 1 parked fetches of connections that are gone"),
    ],
)
def test_a_parked_fetch_of_who_has_gone_is_found(parked: tuple[bool, str], found: str) -> None:
    assert held_too_much(world_with((True, ALIVE), parked)) == [found]


def test_the_log_of_a_partition_that_was_moved_away_is_found() -> None:
    assert held_too_much(world_with(replicas=ELSEWHERE)) == ["broker-1 has logs of ['t-0'], which were moved away"]
