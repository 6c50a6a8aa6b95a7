"""Bugs of logins that these tests must find, seeded one at a time (ST in docs/seeded-bugs.md)."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.server import sasl_gate
from ottla.broker.server.connection import Connection
from ottla.broker.server.sasl_gate import SaslGate
from ottla.broker.server.sasl_listener import SaslListener
from ottla.security import authentication, scram
from ottla.security.authentication import USER, Authenticated, PlainMechanism, Principal
from ottla.security.exchange import SaslExchange
from tests.broker import test_sasl_login, test_sasl_sessions
from tests.broker.sasl_world import HANDSHAKE, SaslClient, SaslWorld
from tests.security import test_scram
from tests.security.test_scram import SERVER_NONCE

Patch = pytest.MonkeyPatch


def end_of_a_nonce_is_enough(patch: Patch) -> None:
    equal = scram.hmac.compare_digest

    def compare(left: Any, right: Any) -> bool:
        return left.endswith(SERVER_NONCE) if isinstance(left, str) else equal(left, right)

    patch.setattr(scram.hmac, "compare_digest", compare)


def principal_from_the_authorization_id(patch: Patch) -> None:
    def respond(self: PlainMechanism, token: bytes, now_wall_ms: int) -> Authenticated:
        authorization_id, user, password = token.decode().split("\0")
        self._check_password(user, password.encode())
        return Authenticated(Principal(USER, authorization_id or user))

    patch.setattr(authentication.PlainMechanism, "respond", respond)


def one_exchange_for_all_connections(patch: Patch) -> None:
    shared: dict[SaslListener, SaslExchange] = {}
    new = SaslListener.new_exchange

    def new_exchange(self: SaslListener) -> SaslExchange:
        return shared.setdefault(self, new(self))

    patch.setattr(SaslListener, "new_exchange", new_exchange)


def limit_stays_as_before_the_login(patch: Patch) -> None:
    handle = SaslGate.handle_frames

    def handle_frames(self: SaslGate, buffer: memoryview, position: int, end: int) -> int:
        size = int.from_bytes(buffer[position : position + 4], "big")
        if size > self._listener.receive_bytes_max:
            self._connection.close(sasl_gate.CloseReason.TOO_LARGE, "")
            return end
        return handle(self, buffer, position, end)

    patch.setattr(SaslGate, "handle_frames", handle_frames)


def rest_of_the_event_is_dropped(patch: Patch) -> None:
    handle = SaslGate._handle_request

    def handle_request(self: SaslGate, api: int, buffer: memoryview, position: int, frame_end: int) -> int:
        after = handle(self, api, buffer, position, frame_end)
        return len(buffer) if self.is_open else after

    patch.setattr(SaslGate, "_handle_request", handle_request)


def state_of_the_beginning_of_the_event(patch: Patch) -> None:
    """A client that begins to log in is served all that has come with it."""

    def handle_frames(self: SaslGate, buffer: memoryview, position: int, end: int) -> int:
        return self._connection.handle_frames(buffer, position, end)

    patch.setattr(SaslGate, "handle_frames", handle_frames)


def failure_is_answered_at_once(patch: Patch) -> None:
    fail = SaslGate.fail

    def fail_at_once(self: SaslGate, *arguments: Any) -> None:
        self._listener.failure_delay_ms = 0
        fail(self, *arguments)

    patch.setattr(SaslGate, "fail", fail_at_once)


def reading_goes_on_during_the_delay(patch: Patch) -> None:
    patch.setattr(Connection, "pause_reading", lambda connection: None)


def timer_kills_idle_connections(patch: Patch) -> None:
    opened = SaslGate._open

    def open_with_a_timer(self: SaslGate, session: Any) -> None:
        opened(self, session)
        if session.expires_ms is not None:
            close = self._connection.close
            self._listener.runtime.wheel.schedule(
                session.expires_ms, lambda: close(sasl_gate.CloseReason.SESSION_EXPIRED, None)
            )

    patch.setattr(SaslGate, "_open", open_with_a_timer)


def wall_clock_ends_sessions(patch: Patch) -> None:
    complete = SaslExchange._complete

    def complete_by_the_wall(self: SaslExchange, known: Any, now_ms: int, now_wall_ms: int) -> Any:
        return complete(self, known, now_wall_ms, now_wall_ms)

    def handle_frames(self: SaslGate, buffer: memoryview, position: int, end: int) -> int:
        self._connection.last_event_ns = self._listener.runtime.clock.wall_ms() * 1_000_000
        return handle(self, buffer, position, end)

    handle = SaslGate.handle_frames
    patch.setattr(SaslExchange, "_complete", complete_by_the_wall)
    patch.setattr(SaslGate, "handle_frames", handle_frames)


def in_a_world(test: Callable[[SaslWorld, SaslClient], None]) -> Callable[[], None]:
    def run() -> None:
        world = SaslWorld()
        test(world, world.connect())

    return run


def in_a_session(test: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    def run() -> None:
        world = SaslWorld(reauthentication_ms=test_sasl_sessions.LIFETIME_MS)
        client = world.connect()
        client.login()
        test(world, client, *arguments)

    return run


SEEDED: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "ST-1": (end_of_a_nonce_is_enough, test_scram.test_a_proof_does_not_make_another_nonce_right),
    "ST-2": (
        principal_from_the_authorization_id,
        in_a_world(test_sasl_login.test_st2_the_principal_is_not_the_authorization_id),
    ),
    "ST-3": (
        one_exchange_for_all_connections,
        lambda: test_sasl_login.test_st3_logins_side_by_side_do_not_mix(SaslWorld()),
    ),
    "ST-4": (
        limit_stays_as_before_the_login,
        in_a_world(test_sasl_login.test_st4_the_limit_of_requests_changes_with_the_login),
    ),
    "ST-5 lost": (
        rest_of_the_event_is_dropped,
        lambda: test_sasl_login.test_st5_requests_behind_the_token_are_served_after_it(HANDSHAKE),
    ),
    "ST-5 early": (
        state_of_the_beginning_of_the_event,
        lambda: test_sasl_login.test_st5_nothing_before_the_token_is_served(*world_and_client(), HANDSHAKE),
    ),
    "ST-6 at once": (
        failure_is_answered_at_once,
        lambda: test_sasl_login.test_failures_look_alike_and_come_late(*world_and_client(), "alice", "PLAIN"),
    ),
    "ST-6 reading": (
        reading_goes_on_during_the_delay,
        in_a_world(test_sasl_login.test_st6_nothing_is_read_while_a_failure_waits),
    ),
    "ST-8 timer": (
        timer_kills_idle_connections,
        in_a_session(test_sasl_sessions.test_st8_an_idle_connection_is_not_closed_by_expiry),
    ),
    "ST-8 wall": (
        wall_clock_ends_sessions,
        in_a_session(test_sasl_sessions.test_st8_the_wall_clock_ends_no_session, 10**9),
    ),
}


def world_and_client() -> tuple[SaslWorld, SaslClient]:
    world = SaslWorld()
    return world, world.connect()


@pytest.mark.parametrize(("seed_bug", "test"), SEEDED.values(), ids=SEEDED.keys())
def test_a_seeded_bug_is_found(monkeypatch: Patch, seed_bug: Callable[[Patch], None], test: Callable[[], None]) -> None:
    test()
    seed_bug(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
