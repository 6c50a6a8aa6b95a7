"""What a handler knows about its request: who sent it, what the sender may do, and how it is answered later.

A handler returns its response, or parks: `context.park()` and `return None`, then `context.complete(response)` exactly
once when the response is known. `respond_later` does that for a coroutine, and is how a handler that is one runs. One
context serves request after request of its connection; parking takes it out of
that rotation, so a handler that means to keep the context must park it.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any

from ottla.broker.logging import error_id
from ottla.broker.runtime import Runtime, next_step
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection_interfaces import ClientConnection, RequestAccess, RequestQuotas
from ottla.broker.server.dispatch import PreparedFrame, Route
from ottla.cluster.image import MetadataImage
from ottla.protocol.errors import InvalidRequest, KafkaError
from ottla.security.authentication import ANONYMOUS, Principal

# Bits 3 to 12 are Kafka's AclOperation numbers: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION,
# DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE. Each kind of resource has those that mean something for it; without
# ACLs every client may do all of them.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << bit for bit in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (1 << bit for bit in range(9, 13))

GROUP_OPERATIONS = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
TOPIC_OPERATIONS = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
CLUSTER_OPERATIONS = (
    _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT_WRITE
)

NOT_ASKED = -(2**31)
"""The value of an `authorized_operations` field when the client has not asked for it."""
REPETITIONS_MAX = 16
"""How often a request may name the same thing, where a name is a few bytes and what is said about it may be long. As in
Kafka each time is answered; no client needs more than one."""


class RequestContext:
    __slots__ = (
        "_client_id",
        "_principal",
        "access",
        "api_version",
        "began_ns",
        "client_id_length",
        "client_id_position",
        "connection",
        "correlation_id",
        "frame",
        "is_parked",
        "mutes",
        "on_disconnect",
        "quotas",
        "response_bytes",
        "route",
        "size_bytes",
    )

    # Set by the connection for each request, with where the client id lies in the connection's buffer.
    route: Route
    api_version: int

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.correlation_id = 0
        # When the read event began that brought it; of a parked one.
        self.began_ns = 0
        # Of the request, its size field left out.
        self.size_bytes = 0
        self.client_id_position = 0
        self.client_id_length = -1
        self._client_id = b""
        self._principal = ANONYMOUS
        # What its sender may do; None where no authorizer is configured.
        self.access: RequestAccess | None = None
        # What it uses of its client's quotas; None where the client has none.
        self.quotas: RequestQuotas | None = None
        self.is_parked = False
        # Whether the connection handles nothing more before this one is answered.
        self.mutes = True
        # Called when the connection is lost while the request is parked.
        self.on_disconnect: Callable[[], object] | None = None
        # The response of a parked request: None while it is unknown.
        self.frame: Any | None = None
        # Of it, or what is expected.
        self.response_bytes = 0

    @property
    def api_key(self) -> int:
        return self.route.api.key

    @property
    def client_host(self) -> str:
        return self.connection.peer_host

    @property
    def client_id(self) -> str | None:
        """Decoded when asked for: few handlers look at it, and the bytes are still in the receive buffer."""
        length = self.client_id_length
        if length < 0:
            return None
        start = self.client_id_position
        client_id = self._client_id if self.is_parked else self.connection.buffer[start : start + length]
        return str(client_id, "utf-8", "replace")

    @property
    def principal(self) -> Principal:
        """Who has sent the request: a client that has logged in again since then counts as it did before (§54.16)."""
        return self._principal if self.is_parked else self.connection.principal

    def is_broker(self, broker_id: int, node_id: int, image: MetadataImage) -> bool:
        """Whether the sender may act as broker `broker_id`, another one than this, which is `node_id` (§3.4).

        Only brokers may: a client that could claim that a follower has what it has not could lose records."""
        return self.connection.is_inter_broker and broker_id in image.brokers and broker_id != node_id

    def park(self, *, mutes: bool = True) -> None:
        """The response comes later. `mutes=False`: requests behind this one are handled before that; their responses
        wait."""
        assert not self.is_parked, "a request can be parked once"
        if self.client_id_length > 0:
            start = self.client_id_position
            self._client_id = bytes(self.connection.buffer[start : start + self.client_id_length])
        self._principal = self.connection.principal
        self.is_parked = True
        self.mutes = mutes
        self.connection.park(self)

    def expect_response(self, size_bytes: int) -> None:
        """The response of a parked request is being read from the disk: its memory is counted from now on."""
        self.connection.expect(size_bytes - self.response_bytes)
        self.response_bytes = size_bytes

    def complete(self, response: Any, frame: Any = None) -> None:
        """Answers a parked request; `frame` has the response where it has been built. Harmless when its connection has
        gone."""
        assert self.is_parked, "only a parked request is completed; others return their response"
        assert self.frame is None, "a request is answered once"
        if frame is None:
            if self.access is not None:
                response = self.access.amended(response)
            if self.quotas is not None:
                response = self.quotas.answered(self, response)
            frame = self.route.build_frame(response, self.correlation_id)
        elif response is None and self.quotas is not None:
            self.quotas.answered(self, None)
        self.frame = frame
        expected_bytes = self.response_bytes
        self.response_bytes = len(frame) if type(frame) is bytes else sum(map(len, frame))
        self.connection.send_completed(self.response_bytes - expected_bytes)

    def disconnected(self) -> None:
        """Its connection is lost: what waits for that is called, once."""
        if self.on_disconnect is not None:
            self.on_disconnect()
            self.on_disconnect = None

    def respond_later(self, runtime: Runtime, response: Coroutine[Any, Any, Any]) -> None:
        """Parks until the coroutine returns the response, or raises the KafkaError of an error response. One that
        returns None has seen to the response itself.

        A connection that is lost does not end the coroutine: what it has begun is done."""
        self.park()
        self.complete_later(runtime.spawn, response)

    def complete_later(
        self, spawn: Callable[[Coroutine[Any, Any, None], str], object], response: Coroutine[Any, Any, Any]
    ) -> None:
        """Answers a parked request when the coroutine, which `spawn` runs, returns the response."""
        responding = self._respond(response)
        spawn(responding if self.quotas is None else self.quotas.timed(responding), self.route.api.name)

    async def _respond(self, response: Coroutine[Any, Any, Any]) -> None:
        try:
            known = await response
            if known is not None:
                if self.access is not None:
                    for _ in self.access.amending(known):
                        await next_step()
                if self.quotas is not None:
                    known = self.quotas.answered(self, known)
                self.complete(known, await self.built(known, self.correlation_id))
        except KafkaError as error:
            self.fail(error)
        except Exception as error:
            answer = self.answer_to_bug(error)
            if answer is not None:
                self.complete(answer)
            raise

    def answer_to_bug(self, error: Exception) -> Any | None:
        """What the client gets where the handler has failed; None where the connection is closed instead."""
        if self.access is not None:
            self.access.forget_amendments()
        response = self.route.unexpected_error_response(error)
        if response is None:
            why = f"{self.route.api.name} failed unexpectedly: {error_id(error)}"
            self.connection.close(CloseReason.UNHANDLED_ERROR, why)
        return response

    async def built(self, response: Any, correlation_id: int) -> Any:
        """The frame of a response; a long one in several steps."""
        build = self.route.build_in_slices
        if build is None or type(response) is PreparedFrame:
            return self.route.build_frame(response, correlation_id)
        building = build(response, correlation_id)
        while True:
            try:
                next(building)
            except StopIteration as end:
                return end.value
            await next_step()

    def fail(self, error: Exception) -> None:
        """Answers a parked request with the API's error response, or closes the connection where there is none."""
        if self.access is not None:
            self.access.forget_amendments()
        response = self.route.error_response(error)
        if response is None:
            self.close_connection(f"{self.route.api.name} failed: {error}")
        else:
            self.complete(response)

    def close_connection(self, why: str) -> None:
        """For an error that the response has no place for."""
        self.connection.close(CloseReason.REQUEST_FAILED, why)


def check_repetitions(what: str, names: Iterable[Hashable], count: int) -> None:
    """Of `count` names of a request. Raises InvalidRequest for one that is there more than `REPETITIONS_MAX` times."""
    if count > REPETITIONS_MAX and max(Counter(names).values()) > REPETITIONS_MAX:
        raise InvalidRequest(f"a {what} is named more than {REPETITIONS_MAX} times in one request")
