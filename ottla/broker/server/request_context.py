"""What a handler knows about the request it serves, and how it answers later.

A handler returns its response, or parks: `context.park()` and `return None`, then `context.complete(response)` exactly
once when the response is known. `respond_later` does that for a coroutine, and is how a handler that is one runs. One
context serves request after request of its connection; parking takes it out of
that rotation, so a handler that means to keep the context must park it.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.runtime import Runtime
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.server.connection import Connection
    from ottla.broker.server.dispatch import Route


class RequestContext:
    __slots__ = (
        "_client_id",
        "answer_bytes",
        "client_id_length",
        "client_id_position",
        "connection",
        "correlation_id",
        "frame",
        "is_parked",
        "mutes",
        "on_disconnect",
        "route",
        "size_bytes",
    )

    route: "Route"

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.correlation_id = 0
        # Of the request, its size field left out.
        self.size_bytes = 0
        self.is_parked = False
        # Whether the connection handles nothing more before this one is answered.
        self.mutes = True
        # Called when the connection is lost while the request is parked.
        self.on_disconnect: Callable[[], object] | None = None
        # The answer of a parked request: None while it is unknown.
        self.frame: Any | None = None
        # Of it, or what is expected.
        self.answer_bytes = 0
        self._client_id: str | None = None
        # Where the client id lies in the connection's buffer. These, `route`, `correlation_id` and `size_bytes` are
        # set by the connection for each request.
        self.client_id_position = 0
        self.client_id_length = -1

    @property
    def api_key(self) -> int:
        return self.route.api.key

    @property
    def api_version(self) -> int:
        return self.route.version

    @property
    def client_host(self) -> str:
        return self.connection.peer_host

    @property
    def client_id(self) -> str | None:
        """Decoded when asked for: few handlers look at it, and the bytes are still in the receive buffer."""
        if self.is_parked:
            return self._client_id
        if self.client_id_length < 0:
            return None
        start = self.client_id_position
        return str(self.connection.buffer[start : start + self.client_id_length], "utf-8", "replace")

    def park(self, *, mutes: bool = True) -> None:
        """The answer comes later. `mutes=False`: requests behind this one are handled meanwhile; their answers wait."""
        assert not self.is_parked, "a request can be parked once"
        self._client_id = self.client_id
        self.is_parked = True
        self.mutes = mutes
        self.connection.parked(self)

    def expect_answer(self, size_bytes: int) -> None:
        """The answer of a parked request is being read from the disk: its memory is counted from now on."""
        self.connection.expect(size_bytes - self.answer_bytes)
        self.answer_bytes = size_bytes

    def complete(self, response: Any) -> None:
        """Answers a parked request. Harmless when its connection has gone."""
        assert self.is_parked, "only a parked request is completed; others return their response"
        assert self.frame is None, "a request is answered once"
        frame = self.frame = self.route.build_frame(response, self.correlation_id)
        expected_bytes = self.answer_bytes
        self.answer_bytes = len(frame) if type(frame) is bytes else sum(map(len, frame))
        self.connection.completed(self.answer_bytes - expected_bytes)

    def respond_later(self, runtime: Runtime, response: Coroutine[Any, Any, Any]) -> None:
        """Parks until the coroutine returns the response, or raises the KafkaError of an error response.

        A connection that is lost does not end the coroutine: what it has begun is done."""
        self.park()
        runtime.spawn(self._respond(response), self.route.api.name)

    async def _respond(self, response: Coroutine[Any, Any, Any]) -> None:
        try:
            self.complete(await response)
        except KafkaError as error:
            self.fail(error)
        except Exception:
            self.close_connection(f"{self.route.api.name} failed unexpectedly")
            raise

    def fail(self, error: Exception) -> None:
        """Answers a parked request with the API's error response, or closes the connection where there is none."""
        response = self.route.error_response(error)
        if response is None:
            self.connection.close(f"{self.route.api.name} failed: {error}")
        else:
            self.complete(response)

    def close_connection(self, reason: str) -> None:
        self.connection.close(reason)
