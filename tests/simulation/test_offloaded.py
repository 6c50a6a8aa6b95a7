"""Offloaded work that is suspended at operations of its disk."""

import asyncio
import errno
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from ottla.storage import segment_swap
from ottla.storage.files import write_atomically
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import PROCESS, Process, SimulationLoop
from tests.simulation.offloaded import HABITS, Suspensions, WorkLock, current_work
from tests.simulation.trace import Trace

HERE = Path("/data")


class Always(Suspensions):
    """Work is suspended at each operation, for 100 µs."""

    def __init__(self):
        super().__init__(random.Random(0), 1.0, 100)

    def draw_us(self):
        return 100


class Machine:
    def __init__(self, suspensions=None):
        self.suspensions = suspensions or Always()
        self.loop = SimulationLoop(suspensions=self.suspensions)
        self.trace = Trace(lambda: self.loop.now_us, keep=True)
        self.disk = SimulatedDisk(self.trace)
        self.disk.make_directory(HERE)
        self.process = Process("broker")

    def offload(self, work):
        return self.process.context().run(self.loop.run_in_executor, None, work)

    def write(self, name="file", content=b"content"):
        write_atomically(self.disk, HERE / name, content)


@pytest.fixture
def machine():
    return Machine()


def test_loop_goes_on_between_the_operations_of_a_thread(machine):
    seen = []

    async def look():
        while not future.done():
            seen.append(tuple(machine.disk.list_directory(HERE)))
            await asyncio.sleep(0.00005)

    future = machine.offload(machine.write)
    machine.loop.run_until_complete(look())

    assert list(dict.fromkeys(seen)) == [(), ("file.tmp",), ("file",)]
    assert machine.suspensions.counts == {}


def test_works_that_are_suspended_alternate(machine):
    order = []

    def work(name):
        for number in range(3):
            order.append((name, number))
            machine.disk.exists(HERE)
        return name

    results = asyncio.gather(machine.offload(lambda: work("a")), machine.offload(lambda: work("b")))
    assert machine.loop.run_until_complete(results) == ["a", "b"]
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_what_suspended_work_raises_arrives(machine):
    machine.disk.fail("fsync", OSError(errno.EIO, "the disk refuses"))
    with pytest.raises(OSError, match="the disk refuses"):
        machine.loop.run_until_complete(machine.offload(machine.write))


def test_suspended_work_stays_that_of_its_process(machine):
    found = []

    def work():
        for _ in range(2):
            found.append(PROCESS.get())
            machine.disk.exists(HERE)

    machine.loop.run_until_complete(machine.offload(work))
    assert found == [machine.process] * 2
    assert PROCESS.get() is None


def test_suspended_work_of_a_killed_process_never_goes_on(machine):
    """Nor does what it does on its way out change the disk."""
    said = []

    def work():
        try:
            machine.write()
        except Exception:
            said.append("an error")
        finally:
            machine.disk.remove(HERE / "file.tmp")
            said.append("removed")

    future = machine.offload(work)
    machine.loop.call_later(0.00025, machine.loop.kill, machine.process)
    machine.loop.run_forever()

    assert machine.disk.list_directory(HERE) == ["file.tmp"]
    assert said == []
    assert not future.done()


def test_a_stopped_process_goes_on_with_its_work(machine):
    future = machine.offload(machine.write)
    machine.loop.call_later(0.00025, machine.loop.pause, machine.process)
    machine.loop.run_forever()
    assert machine.disk.list_directory(HERE) == ["file.tmp"]

    machine.loop.resume(machine.process)
    machine.loop.run_until_complete(future)
    assert machine.disk.list_directory(HERE) == ["file"]


def test_a_crash_in_suspended_work_ends_the_others(machine):
    machine.loop.on_crash = machine.loop.kill
    machine.disk.light_fuse(random.Random(0), 3)
    ended = []
    for name in ("one", "two"):
        machine.offload(lambda name=name: (machine.write(name), ended.append(name)))
    machine.loop.run_forever()

    assert not machine.process.alive
    assert ended == []
    assert machine.loop.failures == []


def test_closing_the_loop_ends_suspended_work(machine):
    machine.offload(machine.write)
    machine.loop.call_later(0.00025, machine.loop.stop)
    machine.loop.run_forever()
    machine.loop.close()
    assert machine.disk.list_directory(HERE) == ["file.tmp"]


def test_a_thread_may_only_call_soon_threadsafe(machine):
    called = []
    machine.loop.run_until_complete(machine.offload(lambda: machine.loop.call_soon_threadsafe(called.append, 1)))
    for method in (machine.loop.call_soon, lambda callback: machine.loop.call_later(1, callback)):
        with pytest.raises(AssertionError, match="not for threads"):
            machine.loop.run_until_complete(machine.offload(lambda method=method: method(print)))
    assert called == [1]


def test_the_loop_waits_for_a_lock_of_a_thread(machine):
    """Until it is released, and no longer; nothing else happens then."""
    lock = WorkLock(machine.suspensions.counts)
    order = []

    def work():
        with lock:
            machine.write("locked")
            order.append("locked")
        machine.write("unlocked")
        order.append("unlocked")

    def take_lock():
        with lock:
            order.append("loop")

    machine.loop.call_later(0.00025, take_lock)
    machine.loop.call_later(0.00026, order.append, "later")
    machine.loop.run_until_complete(machine.offload(work))

    assert order == ["locked", "loop", "later", "unlocked"]
    assert machine.suspensions.counts == Counter({"loop waited for a lock": 1})


def test_a_thread_waits_for_a_lock_of_another(machine):
    lock = WorkLock(machine.suspensions.counts)
    order = []

    def work(name):
        with lock:
            order.append(name)
            machine.write(name)
            order.append(name)

    works = [machine.offload(lambda name=name: work(name)) for name in ("a", "b")]
    machine.loop.run_until_complete(asyncio.gather(*works))
    assert order == ["a", "a", "b", "b"]


def test_a_crash_while_the_loop_waits_for_a_lock(machine):
    machine.loop.on_crash = machine.loop.kill
    lock = WorkLock(machine.suspensions.counts)

    def work():
        with lock:
            machine.write()

    def take_lock():
        machine.disk.light_fuse(random.Random(0), 1)
        with lock:
            pass

    future = machine.offload(work)
    machine.loop.call_later(0.00025, take_lock, context=machine.process.context())
    machine.loop.run_forever()
    assert not machine.process.alive
    assert not future.done()


def test_one_seed_suspends_the_same_way_again():
    def lines():
        machine = Machine(Suspensions(random.Random(7), *HABITS[1]))
        works = [machine.offload(lambda name=name: machine.write(name)) for name in "abcdefgh"]
        machine.loop.run_until_complete(asyncio.gather(*works))
        return machine.trace.lines()

    assert lines() == lines()


def test_without_suspensions_work_is_one_callback():
    machine = Machine(Suspensions(random.Random(0), 0.0, 0))
    began_us = machine.loop.now_us
    is_work = machine.loop.run_until_complete(machine.offload(lambda: (machine.write(), current_work())[1]))
    assert is_work is None
    assert machine.loop.now_us == began_us


def test_locks_of_storage_are_replaced_while_it_lasts(machine):
    with machine.suspensions.locks():
        assert isinstance(segment_swap.threading.Lock(), WorkLock)
    assert segment_swap.threading is threading


def test_a_quarter_of_the_worlds_have_suspensions():
    drawn = [Suspensions.draw(random.Random(seed)).are_drawn for seed in range(1000)]
    assert 230 < sum(drawn) < 330
