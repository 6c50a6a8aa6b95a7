"""How handlers ask a coordinator: at once, parked, several at a time, and when the client has gone."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from ottla.broker.coordinators.pending_requests import (
    REQUESTS_PER_STEP,
    RESPONSES_PER_STEP,
    PendingRequests,
    Spawn,
)


class Request(NamedTuple):
    token: int


def pending_requests() -> PendingRequests:
    """Whose requests are too few for a second step."""

    def refuse(action: Callable[[], None]) -> None:
        raise AssertionError("one step is enough")

    def refuse_task(coroutine: Coroutine[Any, Any, None], name: str) -> None:
        raise AssertionError("no task is needed")

    return PendingRequests(refuse, refuse_task)


class Steps:
    """Of a loop, run by hand."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], None]] = []
        self.pending = PendingRequests(self.actions.append, self.spawn)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        with pytest.raises(StopIteration):
            coroutine.send(None)

    def run_one(self) -> None:
        actions, self.actions[:] = list(self.actions), []
        for action in actions:
            action()


class Context:
    def __init__(self) -> None:
        self.on_disconnect: Callable[[], object] | None = None
        self.is_parked = False
        self.completed: list[Any] = []

    def park(self) -> None:
        self.is_parked = True

    def complete(self, response: Any) -> None:
        assert self.is_parked
        self.completed.append(response)

    def complete_later(self, spawn: Spawn, response: Coroutine[Any, Any, Any]) -> None:
        async def respond() -> None:
            self.complete(await response)

        spawn(respond(), "")


def test_a_result_that_is_there_at_once_is_returned() -> None:
    pending, context = pending_requests(), Context()

    response = pending.ask(
        lambda request: pending.deliver(request.token, 7), context, Request(pending.new_token()), str
    )

    assert (response, context.is_parked, len(pending)) == ("7", False, 0)


def test_a_later_result_completes_the_parked_request() -> None:
    pending, context = pending_requests(), Context()
    token = pending.new_token()
    assert pending.ask(lambda _: None, context, Request(token), str) is None
    pending.deliver(token, 7)
    assert (context.completed, len(pending)) == (["7"], 0)


def test_a_part_of_the_broker_gets_a_result_now_or_later() -> None:
    pending = pending_requests()
    later: list[int] = []
    known = pending.ask_here(
        lambda request: pending.deliver(request.token, 7), Request(pending.new_token()), later.append
    )
    assert (known, later) == (7, [])

    token = pending.new_token()
    assert pending.ask_here(lambda _: None, Request(token), later.append) is None
    pending.deliver(token, 8)
    assert (later, len(pending)) == ([8], 0)


def test_results_of_several_requests_keep_their_order() -> None:
    pending, context = pending_requests(), Context()
    requests = [Request(pending.new_token()) for _ in range(3)]
    assert pending.ask_each(lambda _: None, context, requests, len(requests), list) is None
    for request in reversed(requests):
        pending.deliver(request.token, request.token)
    assert context.completed == [[1, 2, 3]]


def test_no_requests_are_answered_at_once() -> None:
    assert pending_requests().ask_each(lambda _: None, Context(), [], 0, list) == []


def test_a_client_that_has_gone_is_not_answered() -> None:
    pending, context = pending_requests(), Context()
    requests = [Request(pending.new_token()) for _ in range(2)]
    pending.ask_each(lambda _: None, context, requests, len(requests), list)
    assert context.on_disconnect is not None
    context.on_disconnect()
    assert len(pending) == 0
    pending.deliver(1, "late")
    assert context.completed == []


def test_many_requests_of_one_client_take_several_steps() -> None:
    steps, context, sent = Steps(), Context(), list[int]()
    requests = [Request(steps.pending.new_token()) for _ in range(3 * REQUESTS_PER_STEP)]

    def send(request: Request) -> None:
        sent.append(request.token)
        steps.pending.deliver(request.token, request.token)

    assert steps.pending.ask_each(send, context, requests, len(requests), list) is None
    counts = [len(sent)]
    while steps.actions:
        steps.run_one()
        counts.append(len(sent))

    assert counts == [REQUESTS_PER_STEP, 2 * REQUESTS_PER_STEP, 3 * REQUESTS_PER_STEP]
    assert context.completed == [[request.token for request in requests]]


def parked(steps: Steps, count: int) -> list[Context]:
    contexts = [Context() for _ in range(count)]
    for token, context in enumerate(contexts, start=1):
        assert steps.pending.ask(lambda _: None, context, Request(token), str) is None
    return contexts


def test_responses_to_many_parked_requests_take_several_steps() -> None:
    steps = Steps()
    contexts = parked(steps, 3 * RESPONSES_PER_STEP)
    for token in range(1, len(contexts) + 1):
        steps.pending.deliver(token, token)

    counts = [sum(len(context.completed) for context in contexts)]
    while steps.actions:
        steps.run_one()
        counts.append(sum(len(context.completed) for context in contexts))

    assert counts == [RESPONSES_PER_STEP, 2 * RESPONSES_PER_STEP, 3 * RESPONSES_PER_STEP, 3 * RESPONSES_PER_STEP]
    assert [context.completed for context in contexts] == [[str(token)] for token in range(1, len(contexts) + 1)]


def test_responses_that_wait_for_a_step_leave_before_the_end() -> None:
    steps = Steps()
    contexts = parked(steps, 2 * RESPONSES_PER_STEP)
    for token in range(1, len(contexts) + 1):
        steps.pending.deliver(token, token)

    steps.pending.clear()

    assert all(context.completed for context in contexts)


async def slowly(result: int) -> str:
    return str(result)


def test_a_result_may_be_made_into_a_response_by_a_task() -> None:
    steps, context = Steps(), Context()
    request = Request(steps.pending.new_token())
    response = steps.pending.ask(lambda request: None, context, request, slowly)
    steps.pending.deliver(request.token, 7)

    assert (response, context.completed) == (None, ["7"])


def test_a_result_that_is_there_at_once_parks_for_a_task() -> None:
    steps, context = Steps(), Context()
    request = Request(steps.pending.new_token())
    response = steps.pending.ask(lambda request: steps.pending.deliver(request.token, 7), context, request, slowly)

    assert (response, context.completed) == (None, ["7"])
