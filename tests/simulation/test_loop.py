"""The loop in virtual time."""

import asyncio
import contextvars
import inspect

import pytest

from tests.simulation.loop import NothingLeftToDo, Process, SimulationLoop, VirtualClock


@pytest.fixture
def loop():
    return SimulationLoop()


def test_time_passes_only_to_the_next_timer(loop):
    clock = VirtualClock(loop, wall_start_ms=5_000_000)

    async def sleep_for_a_week():
        before_ms, before_wall_ms = clock.now_ms(), clock.wall_ms()
        await asyncio.sleep(7 * 24 * 3600)
        return clock.now_ms() - before_ms, clock.wall_ms() - before_wall_ms

    assert loop.run_until_complete(sleep_for_a_week()) == (604_800_000, 604_800_000)
    assert loop.steps < 10


def test_timers_of_one_moment_run_in_the_order_they_were_set(loop):
    """The stock loop's heap does not keep it."""
    order = []
    for number in range(100):
        loop.call_later(1, order.append, number)
    loop.run_forever()
    assert order == list(range(100))


def test_a_timer_is_not_early_by_a_rounding(loop):
    clock = VirtualClock(loop)
    late_ms = []
    for deadline_ms in range(1_000, 200_000, 7):
        loop.call_at(deadline_ms / 1000, lambda deadline_ms=deadline_ms: late_ms.append(clock.now_ms() - deadline_ms))
    loop.run_forever()
    assert set(late_ms) == {0}


def test_a_cancelled_timer_does_not_move_the_clock(loop):
    loop.call_later(10, print).cancel()
    started_us = loop.now_us
    loop.run_forever()
    assert loop.now_us == started_us


def test_waiting_for_what_never_comes_is_an_error(loop):
    with pytest.raises(NothingLeftToDo):
        loop.run_until_complete(loop.create_future())


def test_an_executor_runs_later_and_in_no_thread(loop):
    loop = SimulationLoop(executor_delay_us=lambda: 700)

    async def work():
        started_us = loop.now_us
        result = await asyncio.to_thread(lambda: loop.now_us - started_us)
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        return result, loop.now_us - started_us

    assert loop.run_until_complete(work()) == (700, 1400)


def test_what_a_callback_raises_is_kept(loop):
    loop.call_soon(lambda: 1 // 0)
    loop.run_forever()
    assert isinstance(loop.failures[0]["exception"], ZeroDivisionError)


def test_coroutines_not_begun_are_closed_with_the_loop(loop):
    begun = []

    async def begin():
        begun.append("it has")

    process = Process("broker")
    task = loop.create_task(begin(), context=process.context())
    loop.kill(process)
    loop.run_forever()
    loop.close()

    coroutine = task.get_coro()
    assert begun == []
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_real_sockets_are_refused(loop):
    with pytest.raises(NotImplementedError):
        loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))


def test_a_killed_process_says_no_goodbye(loop):
    said = []
    process = Process("victim")

    async def child():
        try:
            await asyncio.sleep(5)
            said.append("woke")
        finally:
            said.append("goodbye")

    async def parent():
        asyncio.get_running_loop().create_task(child())
        asyncio.get_running_loop().call_later(3, said.append, "timer")

    loop.create_task(parent(), context=process.context())
    loop.call_later(1, loop.kill, process, context=contextvars.Context())
    loop.call_later(10, said.append, "the world goes on")
    loop.run_forever()
    assert said == ["the world goes on"]
    assert loop.failures == []


def test_every_step_is_seen_with_its_process(loop):
    seen = []
    process = Process("broker")
    loop.after_step = seen.append
    loop.call_soon(lambda: loop.call_soon(lambda: None), context=process.context())
    loop.call_soon(lambda: None)
    loop.run_forever()
    assert seen == [process, None, process]


def test_context_of_the_world_is_not_a_process_s(loop):
    """An empty context is false in Python, and was once taken for none."""
    seen = []
    process = Process("broker")
    loop.after_step = seen.append
    outside = contextvars.Context()
    loop.call_soon(lambda: loop.call_soon(lambda: None, context=outside), context=process.context())
    loop.run_forever()
    assert seen == [process, None]


def test_resumed_process_runs_what_became_ready_while_stopped(loop):
    process, ran = Process("p"), []
    loop.call_later(1, ran.append, 1, context=process.context())
    loop.call_later(2, ran.append, 2)
    cancelled = loop.call_later(3, ran.append, 3, context=process.context())
    loop.pause(process)
    loop.run_forever()
    assert ran == [2]
    cancelled.cancel()
    loop.resume(process)
    loop.run_forever()
    assert ran == [2, 1]


def test_process_killed_while_stopped_runs_nothing_more(loop):
    process, ran = Process("p"), []
    loop.call_later(1, ran.append, 1, context=process.context())
    loop.pause(process)
    loop.run_forever()
    loop.kill(process)
    loop.resume(process)
    loop.run_forever()
    assert ran == []


def test_what_an_executor_returns_arrives_after_other_events(loop):
    loop = SimulationLoop(executor_delay_us=lambda: 100, executor_return_us=lambda: 900)
    seen = []

    async def main():
        loop.call_at_us(loop.now_us + 500, seen.append, "event")
        await loop.run_in_executor(None, seen.append, "work")
        seen.append("result")
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    loop.run_until_complete(main())
    assert seen == ["work", "event", "result"]
