"""The two sides of a connection: what handlers know of it, and what it asks of the server that owns it.

A connection gets its server as a `ConnectionOwner`, and copies into itself what it needs for every request: thousands
of connections share one of each of these parts. Requests are `RequestContext`s, which are built on this file.
"""

from collections.abc import Callable, Coroutine, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.broker.runtime import Runtime
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection_memory import ConnectionMemory
from ottla.broker.server.dispatch import Dispatcher, Route
from ottla.broker.server.receive_buffers import ReceiveBuffers
from ottla.broker.server.turns import Turns
from ottla.replication.fetch_session import FetchContext
from ottla.security.authentication import AuthenticationError, Principal
from ottla.security.exchange import Handshake, SaslReply

if TYPE_CHECKING:
    from ottla.security.quota_budgets import MutationQuota

# Size, API key and version as one number, correlation id, length of the client id: the part every header begins with.
HEADER_START = Struct(">iIih")
HEADER_START_BYTES = HEADER_START.size
SMALLEST_FRAME_SIZE = HEADER_START_BYTES - 4
NS_PER_MS = 1_000_000
# Why a connection handles no requests now.
HELD_BY_PARKED, HELD_BY_WRITING, HELD_BY_THROTTLE, CLOSED, HELD_BY_START, HELD_BY_TURN = 1, 2, 4, 8, 16, 32
HELD_BY_LOGIN = 64


class ClientIdentity(NamedTuple):
    """What a client says of itself when it asks for ApiVersions."""

    client_id: str | None
    software_name: str
    software_version: str


class LoginGate(Protocol):
    """What stands before the requests of a connection by SASL, as handlers and the connection know it."""

    @property
    def is_open(self) -> bool:
        """Whether the client has logged in."""
        ...

    @property
    def mechanism(self) -> str:
        """The one that the client has named last."""
        ...

    def handshake(self, mechanism: str, version: int) -> Handshake: ...

    def respond(self, token: bytes) -> SaslReply:
        """Raises AuthenticationError."""
        ...

    def measure_session(self) -> None:
        """Its end may come at another moment now: time runs in another way."""
        ...

    def fail(self, context: Any, response: Any, error: AuthenticationError) -> None:
        """The client gets the response to the request of this context later, and nothing after it."""
        ...

    def handle_frames(self, buffer: memoryview, position: int, end: int) -> int: ...

    def end(self) -> None:
        """The connection closes."""
        ...


class ClientConnection(Protocol):
    """The connection of a request, as handlers and the context know it."""

    gate: LoginGate | None
    """None on a listener without SASL."""
    principal: Principal
    """Who the client is."""

    client: ClientIdentity | None
    """None until it has said who it is."""

    listener_name: str
    is_inter_broker: bool
    """Whether it came by the listener that brokers have for each other."""
    peer_host: str
    buffer: memoryview
    """Has the client id of the request that is being handled."""
    fetch_room: Callable[[], int]
    """How many bytes of records a response may have now."""

    @property
    def is_closed(self) -> bool: ...

    def __hash__(self) -> int: ...

    def park(self, context: Any) -> None: ...

    def expect(self, more_bytes: int) -> None: ...

    def send_completed(self, more_bytes: int) -> None: ...

    def close(self, reason: CloseReason, why: str | None) -> None: ...


class RequestAccess(Protocol):
    """What the sender of one request may do, and what is added to its response about what it may not. The authorizer
    has the rest (`ottla.broker.authorization`)."""

    def amended(self, response: Any) -> Any: ...

    def amending(self, response: Any) -> Iterator[None]:
        """The same, a little at a time."""
        ...

    def forget_amendments(self) -> None:
        """Another response than the handler's is sent."""
        ...

    def leave_denied_out(self, fetch: FetchContext) -> None:
        """Of one fetch of a consumer, what it may not read, which the response says."""
        ...


class RequestQuotas(Protocol):
    """What one request uses of the quotas of its client (`ottla.broker.quotas`)."""

    def answered(self, context: Any, response: Any) -> Any:
        """The response as it is sent; None for a request that has none. What was used is recorded."""
        ...

    def fetched(self, context: Any, size_bytes: int) -> int:
        """For how long its consumer must rest, ms, instead of getting so many bytes; 0: it gets them."""
        ...

    def mutation(self, *, is_strict: bool) -> "MutationQuota | None":
        """What it may change of topics; None: without a limit."""
        ...

    def creation(self) -> "MutationQuota | None":
        """What may be created of topics because it asks for them, which its answer says nothing of."""
        ...

    def timed(self, coroutine: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """The same, whose steps count as time of the request."""
        ...


class ConnectionTimes(Protocol):
    """What counts how long requests take."""

    runs: list[tuple[Route, int]]
    """Of the read event that is handled: how many requests in a row had one route, but for its last
    run."""

    def count(self, duration_ns: int, connection: Any) -> None:
        """A read event is over that had several runs, or was slow."""
        ...

    def count_parked(self, request: Any) -> int:
        """The response of a request that was parked leaves, at the time that this gives, in ns."""
        ...


class ConnectionOwner(Protocol):
    """The server, as its connections know it."""

    runtime: Runtime
    dispatcher: Dispatcher
    receive_buffers: ReceiveBuffers
    memory: ConnectionMemory
    turns: Turns
    inter_broker_listener: str
    """The name of the listener that brokers have for each other."""
    request_bytes_max: int
    """A frame that announces more closes its connection."""

    @property
    def times(self) -> ConnectionTimes: ...

    def connected(self, connection: Any) -> None: ...

    def closing(self, connection: Any, reason: CloseReason, why: str | None) -> None:
        """Nothing is read from it any more; `why` is for the log."""
        ...

    def lost(self, connection: Any) -> None:
        """Its socket is closed, and it was not closing."""
        ...

    def disconnected(self, connection: Any) -> None:
        """Its socket is closed."""
        ...
