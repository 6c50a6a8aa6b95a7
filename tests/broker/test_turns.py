"""What exceeds a step of the loop waits for its turn, and clients that ask for little do not wait for it."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.server import connection as connections
from ottla.broker.server import turns as turns_module
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_memory import ConnectionMemory
from ottla.broker.server.turns import (
    TURN_NS,
    Turns,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.requests import fetch
from tests.broker.test_connection import FakeTransport, feed
from tests.broker.wire import (
    running_broker,
    turn,
    until,
)
from tests.fakes.frames import build_request_frame

ASK = ApiVersionsRequest()

HALF = TURN_NS // 2


class Steps:
    """The loop: actions run in the step after the one that has asked for them. Its clock goes on by `look_ns` whenever
    it is read."""

    def __init__(self, *, look_ns: int = TURN_NS) -> None:
        self.actions: list[Callable[[], None]] = []
        self._look_ns = look_ns
        self._ns = 0

    def now_ns(self) -> int:
        self._ns += self._look_ns
        return self._ns

    def soon(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    def step(self) -> None:
        actions, self.actions = self.actions, []
        for action in actions:
            action()


def asked(count: int) -> bytes:
    return b"".join(build_request_frame(ASK, 0, number, "c") for number in range(count))


def connected(broker: Broker) -> tuple[Connection, FakeTransport]:
    connection, transport = Connection(broker.server, "PLAINTEXT"), FakeTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


@pytest.fixture
def shortest_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is over whenever a connection looks, and no pause ends a rush: not the time since the machine started
    either, which a clock shows that begins there."""
    pause_ns = 1 << 60
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    monkeypatch.setattr(turns_module, "PAUSE_NS", pause_ns)
    monkeypatch.setattr(turns_module, "NEVER", -pause_ns - 1)


def test_each_step_gives_one_long_turn_in_the_order_of_arrival() -> None:
    steps, given = Steps(), list[str]()
    turns = Turns(steps.soon, steps.now_ns)
    turns.wait(lambda: given.append("a"))
    turns.wait(lambda: given.append("b"))

    assert given == []
    steps.step()
    assert given == ["a"]
    turns.wait(lambda: given.append("c"))
    steps.step()
    steps.step()

    assert given == ["a", "b", "c"]
    assert (len(turns), steps.actions) == (0, [])


def test_short_turns_share_a_step() -> None:
    steps, given = Steps(look_ns=TURN_NS // 2), list[int]()
    turns = Turns(steps.soon, steps.now_ns)
    for number in range(5):
        turns.wait(lambda number=number: given.append(number))  # type: ignore[misc]

    counts = []
    while steps.actions:
        steps.step()
        counts.append(len(given))

    assert (counts, given) == ([2, 4, 5], [0, 1, 2, 3, 4])


def test_who_waits_again_in_its_turn_comes_once_more() -> None:
    steps, given = Steps(), list[str]()
    turns = Turns(steps.soon, steps.now_ns)

    def go_on() -> None:
        given.append("first")
        turns.wait(lambda: given.append("rest"))

    turns.wait(go_on)
    steps.step()
    assert len(steps.actions) == 1
    steps.step()

    assert (given, steps.actions) == (["first", "rest"], [])


def test_who_has_little_does_not_wait_for_who_has_much() -> None:
    steps, given = Steps(), list[str]()
    turns = Turns(steps.soon, steps.now_ns)
    for number in range(3):
        turns.wait(lambda number=number: given.append(f"much {number}"))  # type: ignore[misc]
    turns.wait(lambda: given.append("little"), is_little=True)

    steps.step()
    assert (given, len(turns)) == (["little", "much 0"], 2)
    steps.step()
    steps.step()

    assert (given, steps.actions) == (["little", "much 0", "much 1", "much 2"], [])


def test_the_rest_of_a_turn_is_not_little() -> None:
    steps, given = Steps(), list[str]()
    turns = Turns(steps.soon, steps.now_ns)

    def go_on() -> None:
        turns.wait(lambda: given.append("rest"), is_little=True)

    turns.wait(lambda: given.append("much"))
    turns.wait(go_on, is_little=True)
    steps.step()
    steps.step()

    assert given == ["much", "rest"]


def test_a_turn_that_fails_does_not_end_the_others() -> None:
    steps, given = Steps(), list[str]()
    turns = Turns(steps.soon, steps.now_ns)

    def fail() -> None:
        raise ValueError

    turns.wait(fail)
    turns.wait(lambda: given.append("b"))

    with pytest.raises(ValueError):
        steps.step()
    steps.step()

    assert given == ["b"]


def test_connections_share_the_time_of_a_step() -> None:
    steps = Steps()
    turns = Turns(steps.soon, steps.now_ns)

    assert [
        turns.is_over(began_ns=100 * HALF, now_ns=101 * HALF),
        turns.is_over(began_ns=101 * HALF, now_ns=102 * HALF),
    ] == [False, True]
    steps.step()
    assert not turns.is_over(began_ns=102 * HALF, now_ns=103 * HALF)
    steps.step()

    assert steps.actions == []


def test_requests_that_can_wait_do_so_in_a_rush_alone() -> None:
    steps = Steps()
    turns = Turns(steps.soon, steps.now_ns)

    together = [turns.is_crowded(100 * HALF + number * HALF, in_rushes=True) for number in range(4)]
    alone = [turns.is_crowded(200 * HALF + number * (TURN_NS + 1), in_rushes=True) for number in range(4)]

    assert (together, alone) == ([False, False, True, True], [False, False, False, False])


def test_a_turn_in_a_rush_is_not_waited_for_again() -> None:
    steps, found = Steps(), list[bool]()
    turns = Turns(steps.soon, steps.now_ns)
    assert [
        turns.is_crowded(100 * HALF, in_rushes=True),
        turns.is_crowded(101 * HALF, in_rushes=True),
        turns.is_crowded(102 * HALF, in_rushes=True),
    ] == [False, False, True]

    turns.wait(lambda: found.append(turns.is_crowded(103 * HALF, in_rushes=True)))
    steps.step()

    assert found == [False]


def test_a_turn_that_was_waited_for_is_a_whole_one() -> None:
    steps, found = Steps(), list[bool]()
    turns = Turns(steps.soon, steps.now_ns)
    turns.wait(lambda: found.append(turns.is_over(began_ns=110 * HALF, now_ns=111 * HALF)))

    assert turns.is_over(began_ns=100 * HALF, now_ns=105 * HALF)
    steps.step()

    assert found == [False]


@pytest.mark.usefixtures("shortest_turns")
async def test_a_connection_with_many_requests_lets_others_go_first(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        busy, busy_transport = connected(broker)
        other, other_transport = connected(broker)

        feed(busy, asked(1000))
        feed(other, asked(1))

        assert len(busy_transport.frames) == 1
        assert busy_transport.reading_paused
        assert len(other_transport.frames) == 1
        await until(broker, lambda: len(busy_transport.frames) == 1000)
        answered = [struct.unpack_from(">i", frame, 4)[0] for frame in busy_transport.frames]
        assert answered == list(range(1000))
        assert not busy_transport.reading_paused
        busy.connection_lost(None)
        other.connection_lost(None)


@pytest.mark.usefixtures("shortest_turns")
async def test_a_few_pipelined_requests_do_not_wait_for_a_flood(tmp_path: Path) -> None:
    """What a producer has that was kept waiting once: were it served after all floods, it would be ever again."""
    async with running_broker(tmp_path) as broker:
        floods = [connected(broker) for _ in range(20)]
        other, transport = connected(broker)
        for flood, _ in floods:
            feed(flood, asked(2000))
        feed(other, asked(2))

        await turn(broker)
        served_besides = sum(len(flood_transport.frames) for _, flood_transport in floods) - len(floods)
        answered = len(transport.frames)

        for connection in (other, *(flood for flood, _ in floods)):
            connection.connection_lost(None)
        assert answered == 2
        assert served_besides < len(floods) // 2


@pytest.mark.usefixtures("shortest_turns")
async def test_a_connection_with_long_requests_handles_one_in_a_turn(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        busy, transport = connected(broker)

        feed(busy, build_request_frame(ASK, 0, 1, "c" * connections.LONG_REQUEST) * 3)

        assert len(transport.frames) == 1
        await until(broker, lambda: len(transport.frames) == 3)
        busy.connection_lost(None)


@pytest.mark.usefixtures("shortest_turns")
@pytest.mark.parametrize("request_of_member", [JoinGroupRequest(group_id="g"), SyncGroupRequest(group_id="g")])
async def test_members_of_a_rebalance_wait_and_others_do_not(
    tmp_path: Path, request_of_member: JoinGroupRequest | SyncGroupRequest
) -> None:
    """A thousand of them come at the same time, each on a connection of its own."""
    async with running_broker(tmp_path) as broker:
        members = [connected(broker) for _ in range(5)]
        other, other_transport = connected(broker)

        for connection, _ in members:
            feed(connection, build_request_frame(request_of_member, 5, 1, "c"))
        feed(other, asked(1))

        assert [len(transport.frames) for _, transport in members] == [1, 0, 0, 0, 0]
        assert len(other_transport.frames) == 1
        await until(broker, lambda: all(transport.frames for _, transport in members))
        assert not any(transport.reading_paused for _, transport in members)
        for connection, _ in members:
            connection.connection_lost(None)
        other.connection_lost(None)


async def test_fetches_of_dozens_of_partitions_share_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes a good part of a millisecond, and a hundred may come at the same moment."""
    monkeypatch.setattr(turns_module, "TURN_NS", 1)
    long = fetch("t")
    long.topics[0].partitions = [FetchPartition(partition=number) for number in range(48)]
    async with running_broker(tmp_path) as broker:
        consumers = [connected(broker) for _ in range(5)]
        other, other_transport = connected(broker)

        for connection, _ in consumers:
            feed(connection, build_request_frame(long, 11, 1, "c"))
        feed(other, build_request_frame(fetch("t"), 11, 1, "c"))

        assert [len(transport.frames) for _, transport in consumers] == [1, 0, 0, 0, 0]
        assert len(other_transport.frames) == 1
        await until(broker, lambda: all(transport.frames for _, transport in consumers))
        assert not any(transport.reading_paused for _, transport in consumers)
        for connection, _ in (*consumers, (other, other_transport)):
            connection.connection_lost(None)


@pytest.mark.usefixtures("shortest_turns")
async def test_bytes_that_wait_for_a_turn_are_counted_and_released(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        busy, busy_transport = connected(broker)
        data = asked(10_000)

        feed(busy, data)

        assert broker.server.memory.held_bytes >= len(data) - 100
        await until(broker, lambda: len(busy_transport.frames) == 10_000)
        assert broker.server.memory.held_bytes == 0
        busy.connection_lost(None)


@pytest.mark.usefixtures("shortest_turns")
async def test_a_connection_that_ends_before_its_turn_is_let_go(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        busy, busy_transport = connected(broker)
        feed(busy, asked(100))

        busy.connection_lost(None)
        await until(broker, lambda: not len(broker.server.turns))
        await turn(broker)

        assert len(busy_transport.frames) == 1
        assert broker.server.memory.held_bytes == 0


def test_a_connection_in_its_turns_is_not_the_slowest() -> None:
    class Holder:
        aborted = False

        def count_unread(self) -> bool:
            return False

        def abort(self, reason: object, why: str) -> None:
            self.aborted = True

    memory = ConnectionMemory(bytes_max=100)
    busy, idle, newest = Holder(), Holder(), Holder()
    memory.set(busy, 40)
    memory.set(idle, 40)

    memory.made_progress(busy)
    memory.set(newest, 40)

    assert [busy.aborted, idle.aborted] == [False, True]
