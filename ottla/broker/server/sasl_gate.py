"""What stands before the requests of a connection by SASL: who has not logged in gets no other request served.

Until then frames are taken one by one. The API key is looked at before anything behind it is parsed, and only
ApiVersions, SaslHandshake and SaslAuthenticate go on to be requests, in their order; after a handshake of version 0
frames are tokens. What lies behind the last token is handled once the client is known, by the limits that hold then. A
client that fails gets its answer after a delay in which nothing is read, and the connection closes.

A gate that is open costs one comparison per read event: the time of the event with the end of the session. Where the
session has an end, SaslHandshake closes it again.
"""

import sys
from collections.abc import Mapping
from struct import Struct
from typing import Any, Protocol

from ottla.broker.server.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.broker.server.close_reasons import CloseReason, why_no_frame, why_not_served
from ottla.broker.server.connection_interfaces import (
    CLOSED,
    HELD_BY_LOGIN,
    HELD_BY_START,
    HELD_BY_THROTTLE,
    NS_PER_MS,
    SMALLEST_FRAME_SIZE,
    ClientConnection,
)
from ottla.broker.server.dispatch import VERSION_BITS, Route
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.sasl_listener import SaslListener
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.security.authentication import AuthenticationError
from ottla.security.exchange import Handshake, SaslReply, SaslSession, SaslState
from ottla.timer.wheel import TimerEntry

# From the accept to the end of the login.
LOGIN_TIMEOUT_MS = 30_000
# Before it. A client asks for ApiVersions a few times at most, until it has found a version that is served.
REQUESTS_MAX = 16
NEVER_MS = sys.maxsize

_SIZE = Struct(">i")
_KEY_AND_VERSION = Struct(">I")
_EXPECTED: Mapping[SaslState, tuple[int, ...]] = {
    SaslState.VERSIONS_OR_HANDSHAKE: (API_VERSIONS, SASL_HANDSHAKE),
    SaslState.HANDSHAKE: (SASL_HANDSHAKE,),
    SaslState.TOKENS: (SASL_AUTHENTICATE,),
}
_RAW_HANDSHAKE = SASL_HANDSHAKE << VERSION_BITS


class IllegalSaslState(KafkaError):
    code = ErrorCode.ILLEGAL_SASL_STATE


class GatedConnection(ClientConnection, Protocol):
    """The connection behind a gate."""

    holds: int
    last_event_ns: int
    """When the read event began that is being handled, on the monotonic clock."""

    def handle_frames(self, buffer: memoryview, position: int, end: int) -> int: ...

    def end_run(self) -> None: ...

    def pause_reading(self) -> None: ...


class SaslGate:
    __slots__ = (
        "_connection",
        "_exchange",
        "_expires_ms",
        "_has_failed",
        "_listener",
        "_requests",
        "_session",
        "_timer",
    )

    def __init__(self, connection: GatedConnection, listener: SaslListener) -> None:
        self._connection = connection
        self._listener = listener
        self._exchange = listener.new_exchange()
        self._session: SaslSession | None = None
        # In transport time, as read events have it.
        self._expires_ms = NEVER_MS
        self._has_failed = False
        self._requests = 0
        # Of the login that takes too long, or of the answer to one that has failed.
        self._timer: TimerEntry | None = None
        self._watch_login()

    @property
    def is_open(self) -> bool:
        return self._exchange.state is SaslState.COMPLETE

    @property
    def mechanism(self) -> str:
        return self._exchange.mechanism_name

    def handle_frames(self, buffer: memoryview, position: int, end: int) -> int:
        """As those of the connection: handles until a hold, and gives where the rest begins."""
        connection = self._connection
        while not connection.holds:
            if self.is_open and connection.last_event_ns // NS_PER_MS <= self._expires_ms:
                position = connection.handle_frames(buffer, position, end)
                if not connection.holds & HELD_BY_LOGIN:
                    return position
                handled_to = position
            elif self.is_open:
                handled_to = self._handle_expired(buffer, position, end)
            else:
                handled_to = self._handle_frame(buffer, position, end)
            if self._has_failed:
                # What lies behind it is not kept either.
                return end
            if connection.holds & HELD_BY_LOGIN:
                # The client logs in again.
                connection.holds &= ~HELD_BY_LOGIN
            elif handled_to == position:
                break
            connection.end_run()
            position = handled_to
        return position

    def _handle_expired(self, buffer: memoryview, position: int, end: int) -> int:
        """The session is over: the client may log in again, and nothing else."""
        if end - position < 8:
            return position
        if _KEY_AND_VERSION.unpack_from(buffer, position + 4)[0] >> VERSION_BITS != SASL_HANDSHAKE:
            self._connection.close(CloseReason.SESSION_EXPIRED, "its session has expired, and it did not log in again")
            return end
        frame_end = position + 4 + int(_SIZE.unpack_from(buffer, position)[0])
        return self._connection.handle_frames(buffer, position, min(frame_end, end))

    def _handle_frame(self, buffer: memoryview, position: int, end: int) -> int:
        """One frame before the login."""
        received = end - position
        if received < 4:
            return position
        size: int = _SIZE.unpack_from(buffer, position)[0]
        is_token = self._exchange.state is SaslState.RAW_TOKENS
        size_min, size_max = 0 if is_token else SMALLEST_FRAME_SIZE, self._listener.receive_bytes_max
        if not size_min <= size <= size_max:
            reason, why = why_no_frame(bytes(buffer[position : position + 4]), size_max)
            self._fail(None, None, why, "", reason)
            return end
        frame_end = position + 4 + size
        if is_token:
            if frame_end > end:
                return position
            self._handle_token(bytes(buffer[position + 4 : frame_end]))
            return frame_end
        if received < 8:
            return position
        api_and_version: int = _KEY_AND_VERSION.unpack_from(buffer, position + 4)[0]
        api = api_and_version >> VERSION_BITS
        if api not in _EXPECTED.get(self._exchange.state, ()):
            return self._refuse(api_and_version, buffer, position, end)
        if frame_end > end:
            return position
        return self._handle_request(api, buffer, position, frame_end)

    def _handle_request(self, api: int, buffer: memoryview, position: int, frame_end: int) -> int:
        connection = self._connection
        self._requests += 1
        if self._requests > REQUESTS_MAX and self._session is None:
            connection.close(CloseReason.NOT_AUTHENTICATED, f"{REQUESTS_MAX} requests without a login")
            return frame_end
        handled_to = connection.handle_frames(buffer, position, frame_end)
        # Its client is known from the first ApiVersions that is answered in full.
        if api == API_VERSIONS and connection.client is not None and not connection.holds & CLOSED:
            self._exchange.versions_answered()
        return handled_to

    def _refuse(self, api_and_version: int, buffer: memoryview, position: int, end: int) -> int:
        """Another request than the one that is due."""
        what = f"API {api_and_version >> VERSION_BITS} before the login"
        if self._exchange.state is not SaslState.TOKENS:
            self._connection.close(CloseReason.NOT_AUTHENTICATED, what)
            return end
        if end - position < 12:
            return position
        route = self._listener.dispatcher.routes.get(api_and_version)
        route = route or self._listener.dispatcher.resolve(api_and_version)
        if route is None:
            self._connection.close(CloseReason.NOT_SERVED, why_not_served(api_and_version))
            return end
        context = self._context(route, _SIZE.unpack_from(buffer, position + 8)[0])
        response = route.error_response(IllegalSaslState("the client has not logged in yet"))
        self._fail(None if response is None else context, response, what, "", CloseReason.NOT_AUTHENTICATED)
        return end

    def _context(self, route: Route, correlation_id: int) -> RequestContext:
        """Of a request that the connection does not handle itself."""
        context = RequestContext(self._connection)
        context.route = route
        context.api_version = route.version
        context.correlation_id = correlation_id
        return context

    def _handle_token(self, token: bytes) -> None:
        try:
            reply = self.respond(token)
        except AuthenticationError as error:
            self.fail(None, None, error)
            return
        # In its place among the responses: requests from before may still wait for theirs.
        context = self._context(self._listener.dispatcher.routes[_RAW_HANDSHAKE], 0)
        context.park(mutes=False)
        context.complete(None, _SIZE.pack(len(reply.token)) + reply.token)

    # Called by the handlers of SaslHandshake and SaslAuthenticate.

    def handshake(self, mechanism: str, version: int) -> Handshake:
        was_open = self.is_open
        answer = self._exchange.handshake(mechanism, version, self._listener.runtime.login_clock.now_ms())
        if was_open and not self.is_open:
            # So that the connection gives the frames behind it to the gate.
            self._connection.holds |= HELD_BY_LOGIN
        return answer

    def respond(self, token: bytes) -> SaslReply:
        """Raises AuthenticationError."""
        clock = self._listener.runtime.login_clock
        reply = self._exchange.respond(token, clock.now_ms(), clock.wall_ms())
        if reply.session is not None:
            self._open(reply.session)
        return reply

    def measure_session(self) -> None:
        ends_ms = None if self._session is None else self._session.expires_ms
        clock = self._listener.runtime.login_clock
        self._expires_ms = NEVER_MS if ends_ms is None else clock.transport_ms(ends_ms)

    def fail(self, context: RequestContext | None, response: Any, error: AuthenticationError) -> None:
        self._fail(context, response, str(error), error.user, CloseReason.AUTHENTICATION_FAILED)

    def _open(self, session: SaslSession) -> None:
        connection, listener = self._connection, self._listener
        listener.ended[self._occasion, session.mechanism, "success"] += 1
        self._session = session
        self.measure_session()
        connection.principal = session.principal
        listener.logins.end(connection)
        self.end()
        log = listener.runtime.log.security
        if log.writes("debug"):
            client = connection.client
            log.debug(
                "authenticated",
                peer=connection.peer_host,
                listener=listener.name,
                mechanism=session.mechanism,
                principal=str(session.principal),
                software=None if client is None else f"{client.software_name} {client.software_version}",
            )

    def _fail(self, context: RequestContext | None, response: Any, why: str, user: str, reason: CloseReason) -> None:
        """The connection closes after the delay, the response before that. Nothing is read from now on."""
        connection, listener = self._connection, self._listener
        listener.ended[self._occasion, listener.known_mechanism(self.mechanism), "failure"] += 1
        listener.runtime.log.security.info(
            "authentication failed",
            peer=connection.peer_host,
            listener=listener.name,
            mechanism=self.mechanism,
            user=user,
            reason=why,
        )
        self._has_failed = True
        connection.holds |= HELD_BY_LOGIN
        self.end()
        if context is not None:
            context.park()

        def answer() -> None:
            if context is not None and not connection.is_closed:
                context.complete(response)
            connection.close(reason, None)

        if listener.failure_delay_ms == 0:
            answer()
        else:
            connection.pause_reading()
            self._timer = listener.runtime.wheel.schedule(
                listener.runtime.clock.now_ms() + listener.failure_delay_ms, answer
            )

    @property
    def _occasion(self) -> str:
        return "login" if self._session is None else "renewal"

    def _watch_login(self) -> None:
        runtime = self._listener.runtime
        self._timer = runtime.wheel.schedule(runtime.clock.now_ms() + LOGIN_TIMEOUT_MS, self._login_took_too_long)

    def _login_took_too_long(self) -> None:
        if self._connection.holds & (HELD_BY_START | HELD_BY_THROTTLE):
            # The broker lets it wait.
            self._watch_login()
        else:
            self._connection.close(CloseReason.NOT_AUTHENTICATED, f"no login within {LOGIN_TIMEOUT_MS} ms")

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
