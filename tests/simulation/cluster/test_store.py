"""The store on another machine keeps `MetadataStore`'s promises, as far as the way to it lets it."""

import random

import pytest

from ottla.cluster.store import Changes, Committed, Compacted, Expect, Granted, KeptAlive, LeaseLost, Put, Unavailable
from tests.simulation.cluster.store import STORE_HOST, TIMEOUT_MS, StoreConditions, StoreMachine
from tests.simulation.links import Cut, Links
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.trace import Trace

TO_STORE, TO_BROKER = Cut.both_ways(["broker-1"], [STORE_HOST])


class World:
    def __init__(self, **conditions):
        self.loop = SimulationLoop()
        self.links = Links()
        self.machine = StoreMachine(self.loop, self.links, random.Random(1), Trace(lambda: self.loop.now_us))
        self.machine.conditions = StoreConditions(**conditions)
        self.process = Process("broker 1")
        self.session = self.machine.session("broker-1", self.process.context())
        self.results = []

    def pass_time(self, ms):
        self.loop.call_later(ms / 1000, self.loop.stop)
        self.loop.run_forever()

    def commit(self, key, value=b"1", *expected):
        self.session.commit(expected, [Put(key, value)], self.results.append)

    def stored(self):
        found = []
        self.machine.store.read("", found.append)
        return {entry.key: entry.value for entry in found[0].entries}


@pytest.fixture
def world():
    return World()


def test_answers_take_time_and_come_in_the_order_of_the_calls(world):
    world.commit("a")
    world.commit("b")
    world.session.read("", world.results.append)
    assert world.results == []
    world.pass_time(100)
    assert world.results[:2] == [Committed(1), Committed(2)]
    assert [entry.key for entry in world.results[2].entries] == ["a", "b"]


def test_call_during_a_cut_is_answered_unavailable_in_time(world):
    world.links.cut(TO_STORE)
    world.commit("a")
    world.pass_time(TIMEOUT_MS + 1)
    assert [type(result) for result in world.results] == [Unavailable]
    assert world.stored() == {}


def test_what_was_answered_unavailable_may_have_been_done(world):
    world.links.cut(TO_BROKER)
    world.commit("a")
    world.pass_time(TIMEOUT_MS + 1)
    assert [type(result) for result in world.results] == [Unavailable]
    assert world.stored() == {"a": b"1"}


def test_what_was_answered_unavailable_may_be_done_later(world):
    world.links.cut(TO_STORE)
    for number in range(20):
        world.commit(f"{number:02}")
        world.pass_time(TIMEOUT_MS + 1)
    assert world.stored() == {}
    world.links.heal_all()
    world.pass_time(100)
    assert 0 < len(world.stored()) < 20


def test_lost_answers_do_not_take_the_transaction_back():
    world = World(loses_answers=1.0)
    world.commit("a")
    world.pass_time(100)
    assert [type(result) for result in world.results] == [Unavailable]
    assert world.stored() == {"a": b"1"}


def test_watch_delivers_in_order_also_what_was_held_up(world):
    world.session.watch("", 1, world.results.append)
    other = world.machine.session("broker-2", Process("broker 2").context())
    world.links.cut(TO_BROKER)
    for number in range(5):
        other.commit([], [Put("k", str(number).encode())], lambda result: None)
    world.pass_time(1_000)
    assert world.results == []
    world.links.heal_all()
    other.commit([], [Put("k", b"5")], lambda result: None)
    world.pass_time(1_000)
    assert [event.puts[0].value for event in world.results] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_watch_that_was_held_up_may_have_to_begin_again():
    world = World(forgets_history=1.0)
    world.session.watch("", 1, world.results.append)
    world.pass_time(10)
    world.links.cut(TO_BROKER)
    world.machine.store.commit([], [Put("k", b"1")], lambda result: None)
    world.pass_time(10)
    world.links.heal_all()
    world.machine.store.commit([], [Put("k", b"2")], lambda result: None)
    world.pass_time(1_000)
    assert [type(event) for event in world.results] == [Compacted]


def test_lease_expires_on_virtual_time_unless_kept_alive(world):
    world.session.grant(6_000, world.results.append)
    world.pass_time(100)
    assert world.results == [Granted(1, 6_000)]
    world.session.commit([], [Put("session", b"1", lease_id=1)], world.results.append)
    for _ in range(5):
        world.pass_time(2_000)
        world.session.keep_alive(1, world.results.append)
    world.pass_time(5_000)
    assert world.stored() == {"session": b"1"}
    assert isinstance(world.results[-1], KeptAlive)
    world.pass_time(3_000)
    assert world.stored() == {}
    world.session.keep_alive(1, world.results.append)
    world.pass_time(100)
    assert isinstance(world.results[-1], LeaseLost)


def test_a_stopped_process_hears_nothing_and_its_lease_goes_on(world):
    world.session.grant(6_000, lambda granted: None)
    world.session.commit([Expect("a", 0)], [Put("a", b"1")], world.results.append)
    world.pass_time(100)
    world.session.watch("", 1, world.results.append)
    world.loop.pause(world.process)
    world.commit("b")
    world.pass_time(10_000)
    assert world.results == [Committed(1)]
    assert world.stored() == {"a": b"1", "b": b"1"}
    world.loop.resume(world.process)
    world.pass_time(1)
    assert sorted(type(result).__name__ for result in world.results[1:]) == ["Changes", "Changes", "Committed"]
    assert isinstance(world.results[1], Changes | Committed)


def test_a_dead_process_hears_nothing_more(world):
    world.session.watch("", 1, world.results.append)
    world.commit("a")
    world.loop.kill(world.process)
    world.pass_time(10_000)
    assert (world.results, world.stored()) == ([], {"a": b"1"})
