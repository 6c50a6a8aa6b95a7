"""Requests that wait for their coordinator, by token, and the one way for a handler to ask it.

    request = Heartbeat(groups.new_token(), ...)
    return groups.ask(context, request, build_response)

`ask` gives the response if it is known at once. Otherwise it parks the request, and the context is completed later. A
request whose client has gone is forgotten with its token; a group itself learns of it by the session timeout, as it
must.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol


class ParkingContext(Protocol):
    """What is needed of the context of a request."""

    on_disconnect: Callable[[], object] | None

    def park(self) -> None: ...

    def complete(self, response: Any) -> None: ...


class _WaitingRequest:
    """One request of a client, which may have asked for several results."""

    __slots__ = ("_build_response", "_context", "_is_parked", "_missing", "_response", "_results")

    def __init__(self, context: ParkingContext, build_response: Callable[[list[Any]], Any], count: int) -> None:
        self._context = context
        self._build_response = build_response
        self._results: list[Any] = [None] * count
        self._missing = count
        self._response: Any = None
        self._is_parked = False

    def put(self, index: int, result: Any) -> None:
        self._results[index] = result
        self._missing -= 1
        if not self._missing:
            self.answer(self._results)

    def answer(self, result: Any) -> None:
        response = self._build_response(result)
        if self._is_parked:
            self._context.complete(response)
        else:
            self._response = response

    def response_or_park(self, pending: "PendingRequests", tokens: Sequence[int]) -> Any | None:
        """The response, or None after parking the request; its tokens are forgotten if its connection goes first."""
        if self._response is None:
            self._is_parked = True
            self._context.on_disconnect = partial(pending.forget, tokens)
            self._context.park()
        return self._response


class PendingRequests:
    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self.new_token: Callable[[], int] = count(1).__next__

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(
        self, send: Callable[[Any], None], context: ParkingContext, request: Any, build_response: Callable[[Any], Any]
    ) -> Any | None:
        """Hands the request to `send`; `build_response` makes the response of the result."""
        waiting = _WaitingRequest(context, build_response, 1)
        self._waiting[request.token] = waiting.answer
        send(request)
        return waiting.response_or_park(self, (request.token,))

    def ask_each(
        self,
        send: Callable[[Any], None],
        context: ParkingContext,
        requests: Sequence[Any],
        build_response: Callable[[list[Any]], Any],
    ) -> Any | None:
        """As `ask`, for one response to several requests: `build_response` gets their results in the same order."""
        if not requests:
            return build_response([])
        waiting = _WaitingRequest(context, build_response, len(requests))
        tokens = tuple(request.token for request in requests)
        for index, token in enumerate(tokens):
            self._waiting[token] = partial(waiting.put, index)
        for request in requests:
            send(request)
        return waiting.response_or_park(self, tokens)

    def deliver(self, token: int, result: Any) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            waiting(result)

    def clear(self) -> None:
        self._waiting.clear()

    def forget(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._waiting.pop(token, None)
