"""How handlers ask a coordinator: at once, parked, several at a time, and when the client has gone."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.coordinators.pending_requests import PendingRequests


class Request(NamedTuple):
    token: int


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


def test_a_result_that_is_there_at_once_is_returned() -> None:
    pending, context = PendingRequests(), Context()

    response = pending.ask(
        lambda request: pending.deliver(request.token, 7), context, Request(pending.new_token()), str
    )

    assert (response, context.is_parked, len(pending)) == ("7", False, 0)


def test_a_later_result_completes_the_parked_request() -> None:
    pending, context = PendingRequests(), Context()
    token = pending.new_token()
    assert pending.ask(lambda _: None, context, Request(token), str) is None
    pending.deliver(token, 7)
    assert (context.completed, len(pending)) == (["7"], 0)


def test_results_of_several_requests_keep_their_order() -> None:
    pending, context = PendingRequests(), Context()
    requests = [Request(pending.new_token()) for _ in range(3)]
    assert pending.ask_each(lambda _: None, context, requests, list) is None
    for request in reversed(requests):
        pending.deliver(request.token, request.token)
    assert context.completed == [[1, 2, 3]]


def test_no_requests_are_answered_at_once() -> None:
    assert PendingRequests().ask_each(lambda _: None, Context(), [], list) == []


def test_a_client_that_has_gone_is_not_answered() -> None:
    pending, context = PendingRequests(), Context()
    requests = [Request(pending.new_token()) for _ in range(2)]
    pending.ask_each(lambda _: None, context, requests, list)
    assert context.on_disconnect is not None
    context.on_disconnect()
    assert len(pending) == 0
    pending.deliver(1, "late")
    assert context.completed == []
