"""Waiting that takes the same steps of the loop on every Python."""

import ast
import asyncio
from pathlib import Path

import pytest

import ottla
from tests.simulation.calm import Calm, wait_for_all, wrong_after
from tests.simulation.loop import SimulationLoop
from tests.syntax import syntax_tree

OTTLA = Path(ottla.__file__).parent
SIMULATED = (Path(__file__).parent, *(OTTLA / name for name in ("broker", "coordinator", "replication", "storage")))
# Python 3.12 takes other steps for these than 3.11, or 3.13 than 3.12. So does `gather`, for what has ended already.
DIFFERENT = {"wait_for", "as_completed", "TaskGroup"}


@pytest.fixture
def loop():
    loop = SimulationLoop()
    yield loop
    loop.close()


def test_calm_ends_earlier_sleeps_in_their_order(loop):
    calm = Calm()
    woken = []

    async def sleep(name, duration_ms):
        await calm.sleep_ms(duration_ms)
        woken.append((name, loop.now_us // 1000))

    async def story():
        sleeps = [loop.create_task(sleep(name, ms)) for name, ms in (("long", 9_000), ("longer", 10_000), ("short", 5))]
        await calm.sleep_ms(100)
        calm.set()
        sleeps.append(loop.create_task(sleep("late", 50)))
        await wait_for_all(sleeps)

    loop.run_until_complete(story())

    assert woken == [("short", 1005), ("long", 1100), ("longer", 1100), ("late", 1150)]


def test_a_sleep_takes_three_steps_however_it_ends(loop):
    """Of its task: the first; its timer, or what calm leaves to do of it; and the task's second."""
    calm = Calm()
    loop.run_until_complete(calm.sleep_ms(5))
    assert loop.steps == 3

    sleeping = loop.create_task(calm.sleep_ms(5))
    loop.call_soon(calm.set)
    loop.run_until_complete(sleeping)
    assert loop.steps == 6


def test_waiting_for_what_has_ended_takes_no_step(loop):
    async def end():
        pass

    tasks = [loop.create_task(end()) for _ in range(5)]
    loop.run_forever()
    before = loop.steps
    loop.run_until_complete(wait_for_all(tasks))
    assert loop.steps == before + 1


def test_the_first_failure_among_tasks_is_raised(loop):
    async def fail():
        raise ValueError("no")

    async def story():
        await wait_for_all([loop.create_task(asyncio.sleep(1)), loop.create_task(fail())])

    with pytest.raises(ValueError, match="no"):
        loop.run_until_complete(story())


@pytest.mark.parametrize(
    ("passes_after_ms", "rests_long", "waited_ms", "wrong"),
    [
        pytest.param(250, False, 300, [], id="passes"),
        pytest.param(250, True, 1_000, [], id="rests-long"),
        pytest.param(5_000, False, 1_000, ["wrong"], id="stays"),
        pytest.param(5_000, True, 1_000, ["wrong"], id="stays-and-rests-long"),
    ],
)
def test_what_is_wrong_has_its_time_to_pass(loop, passes_after_ms, rests_long, waited_ms, wrong):
    began_us = loop.now_us

    def still_wrong():
        return ["wrong"] if loop.now_us - began_us < passes_after_ms * 1000 else []

    assert loop.run_until_complete(wrong_after(1_000, still_wrong, rests_long=rests_long)) == wrong
    assert loop.now_us - began_us == waited_ms * 1000


def test_nothing_simulated_waits_by_what_differs_between_pythons():
    found = [
        f"{path}:{node.lineno} asyncio.{node.attr}"
        for directory in SIMULATED
        for path in directory.rglob("*.py")
        for node in ast.walk(syntax_tree(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in DIFFERENT and ast.unparse(node.value) == "asyncio"
    ]
    assert found == []
