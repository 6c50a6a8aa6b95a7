"""A response that may be known before its handler returns, or only later."""

from collections.abc import Callable
from typing import Any

from ottla.broker.server.request_context import RequestContext


class Answer:
    """Hand `give` to whoever will know the response, then end the handler with `return answer.now_or_parked()`."""

    __slots__ = ("_context", "_parked", "_response")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._response: Any = None
        self._parked = False

    def give(self, response: Any) -> None:
        if self._parked:
            self._context.complete(response)
        else:
            self._response = response

    def now_or_parked(self, on_disconnect: Callable[[], object] | None = None) -> Any | None:
        """The response, or None after parking the request; `on_disconnect` is called if its connection goes first."""
        if self._response is None:
            self._parked = True
            self._context.on_disconnect = on_disconnect
            self._context.park()
        return self._response
