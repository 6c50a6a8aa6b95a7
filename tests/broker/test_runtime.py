"""Coroutines of a broker: each step is an event, each has an end."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.broker.config.server import ServerConfig
from ottla.broker.loop_wheel import LoopWheel, TransportLoginClock
from ottla.broker.runtime import BrokerTime, LoopRuntime, TimeLimit, next_step
from ottla.timer.clock import TimerKind
from tests.broker.wire import RecordingLog
from tests.simulation.loop import SimulationLoop, VirtualClock


def run(story: Callable[[LoopRuntime], Coroutine[Any, Any, None]]) -> None:
    loop = SimulationLoop()
    runtime = LoopRuntime(
        loop, ServerConfig(), node_id=0, clock=VirtualClock(loop), rng=Random(1), log=RecordingLog(), executor=None
    )
    loop.run_until_complete(story(runtime))
    assert not loop.failures
    assert len(runtime.wheel) == 0


def test_each_step_of_a_spawned_coroutine_is_an_event() -> None:
    async def story(runtime: LoopRuntime) -> None:
        happened: list[str] = []
        runtime.at_end_of_event(lambda: happened.append("end"))

        async def two_steps() -> str:
            happened.append("first")
            await next_step()
            happened.append("second")
            return "result"

        assert await runtime.spawn(two_steps(), "test") == "result"
        assert happened == ["first", "end", "second", "end"]

    run(story)


def test_cancelled_coroutines_end_and_leave_no_timer() -> None:
    async def story(runtime: LoopRuntime) -> None:
        tasks = [runtime.spawn(runtime.sleep(10_000), "asleep"), runtime.spawn(runtime.sleep(20_000), "asleep")]
        await next_step()
        unstarted = runtime.spawn(runtime.sleep(30_000), "not begun")

        await runtime.cancel_spawned()

        assert all(task.cancelled() for task in (*tasks, unstarted))
        await runtime.cancel_spawned()

    run(story)


def test_no_work_begins_in_a_thread_after_the_end() -> None:
    """A broker that is stopped before its start was over has work under way, whose end asks for more."""

    async def story(runtime: LoopRuntime) -> None:
        done: list[str] = []

        def first_done() -> None:
            done.append("first")
            runtime.offload(lambda: done.append("second"), lambda: done.append("second done"))

        runtime.offload(lambda: None, first_done)
        runtime.stop()
        await runtime.work_done()

        assert done == ["first"]
        assert runtime.works_under_way == 0

    run(story)


def test_an_error_of_a_spawned_coroutine_is_logged() -> None:
    async def story(runtime: LoopRuntime) -> None:
        async def fail() -> None:
            raise ValueError("a bug")

        task = runtime.spawn(fail(), "test")
        with pytest.raises(ValueError, match="a bug"):
            await task
        assert isinstance(runtime.log, RecordingLog)
        assert [event for event, _ in runtime.log.events] == ["unhandled error"]

    run(story)


def test_a_time_limit_ends_the_wait_that_lasts_too_long() -> None:
    async def story(runtime: LoopRuntime) -> None:
        began_ms = runtime.clock.now_ms()
        with pytest.raises(TimeoutError), TimeLimit(runtime, 50):
            await runtime.sleep(1_000)
        assert 50 <= runtime.clock.now_ms() - began_ms < 100
        with TimeLimit(runtime, 1_000):
            await runtime.sleep(10)

    run(story)


def test_coroutine_cancelled_within_its_time_limit_ends() -> None:
    async def story(runtime: LoopRuntime) -> None:
        async def limited() -> None:
            with TimeLimit(runtime, 50):
                await runtime.sleep(1_000)

        task = runtime.spawn(limited(), "test")
        await next_step()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story)


def test_a_thread_whose_caller_is_cancelled_is_waited_for() -> None:
    async def story(runtime: LoopRuntime) -> None:
        done: list[bool] = []
        task = runtime.spawn(runtime.in_thread(lambda: done.append(True)), "test")
        await next_step()
        await runtime.cancel_spawned()
        assert task.cancelled()

        await runtime.work_done()

        assert done == [True]

    run(story)


def test_both_times_are_one_unless_a_test_gives_another() -> None:
    async def story(runtime: LoopRuntime) -> None:
        await next_step()
        assert (runtime.broker_clock, runtime.broker_wheel) == (runtime.clock, runtime.wheel)

    run(story)


def test_timers_go_by_the_time_of_their_kind() -> None:
    loop = SimulationLoop()
    other = VirtualClock(loop, wall_start_ms=5)

    def new_broker_time(runtime: LoopRuntime) -> BrokerTime:
        return BrokerTime(
            other, LoopWheel(loop, other, lambda: None, runtime.report), TransportLoginClock(other), other
        )

    runtime = LoopRuntime(
        loop,
        ServerConfig(),
        node_id=0,
        clock=VirtualClock(loop),
        rng=Random(1),
        log=RecordingLog(),
        executor=None,
        new_broker_time=new_broker_time,
    )

    timer = runtime.schedule(5, lambda: None)
    job = runtime.schedule(5, lambda: None, TimerKind.RETENTION)

    assert (list(runtime.wheel.entries()), list(runtime.broker_wheel.entries())) == ([timer], [job])
    assert runtime.broker_clock is other
    runtime.stop()
    loop.run_forever()
    assert timer.pending
    assert job.pending
