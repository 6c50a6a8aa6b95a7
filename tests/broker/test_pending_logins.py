"""How many connections there may be whose clients have not logged in: §66.7."""

import gc
from typing import Any

import pytest

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection_limits import PENDING_CLOSED_AT_ONCE
from ottla.broker.server.socket_server import CONNECTIONS_PER_COLLECTION
from tests.broker.sasl_world import PLAINTEXT, SASL, WRONG, SaslClient, SaslWorld

LIMIT = "ottla.max.unauthenticated.connections"
WHY = f"3 newer connections have not logged in yet either ({LIMIT})"


def world_of(**settings: Any) -> SaslWorld:
    world = SaslWorld(**{LIMIT.replace(".", "_"): "3"} | settings)
    world.server.limits.add_listener(SASL)
    world.server.limits.add_listener(PLAINTEXT)
    return world


def are_open(clients: list[SaslClient]) -> list[bool]:
    return [not each.is_closed for each in clients]


def test_the_oldest_is_closed_first() -> None:
    world = world_of()
    clients = [world.connect() for _ in range(5)]
    assert are_open(clients) == [False, False, True, True, True]
    assert world.log.reasons() == [WHY, WHY]
    assert world.server.closed == {(SASL, CloseReason.OVER_LIMIT): 2}
    assert clients[2].login().error_code == 0
    assert clients[2].ask()


def test_who_has_logged_in_does_not_count() -> None:
    world = world_of(reauthentication_ms=60_000)
    known = [world.connect() for _ in range(3)]
    for each in known:
        each.login()
    others = [world.connect() for _ in range(3)]
    assert all(are_open(known + others))
    world.pass_ms(2_000)
    # Nor while it logs in again.
    assert known[0].handshake().error_code == 0
    others.append(world.connect())
    assert are_open(known + others) == [True] * 3 + [False] + [True] * 3
    assert len(world.server.logins) == 3


def test_who_has_failed_counts_until_it_is_closed() -> None:
    world = world_of()
    failed = [world.connect() for _ in range(3)]
    for each in failed:
        each.login(WRONG)
    assert len(world.server.logins) == 3
    world.pass_ms(100)
    assert len(world.server.logins) == 0
    assert all(are_open([world.connect() for _ in range(3)]))


@pytest.mark.parametrize("ends", ["close", "abort"])
def test_nothing_is_left_of_those_that_are_gone(ends: str) -> None:
    world = world_of()
    for _ in range(1_000):
        client = world.connect()
        getattr(client.transport, ends)()
    assert len(world.server.logins) == 0
    assert not world.server.closed.get((SASL, CloseReason.OVER_LIMIT))


def test_listeners_without_a_login_do_not_count() -> None:
    world = world_of()
    assert all(are_open([world.connect(PLAINTEXT) for _ in range(10)]))
    assert len(world.server.logins) == 0


def test_brokers_do_not_count_on_a_listener_of_their_own() -> None:
    world = world_of(inter_broker=SASL)
    assert all(are_open([world.connect() for _ in range(10)]))
    alone = SaslWorld(inter_broker=SASL, ottla_max_unauthenticated_connections="3")
    alone.server.limits.add_listener(SASL)
    assert are_open([alone.connect() for _ in range(4)]) == [False, True, True, True]


def test_never_more_than_half_of_all_connections() -> None:
    world = world_of(ottla_max_unauthenticated_connections="100", max_connections="5")
    assert are_open([world.connect() for _ in range(3)]) == [False, True, True]
    assert world_of(max_connections="1").server.logins.most == 1


def test_a_limit_that_is_lowered_is_reached_little_by_little() -> None:
    world = world_of(ottla_max_unauthenticated_connections="20")
    clients = [world.connect() for _ in range(20)]
    world.server.logins._config = ServerConfig({LIMIT: "3"})
    clients += [world.connect() for _ in range(10)]
    assert are_open(clients).index(True) == 10 * PENDING_CLOSED_AT_ONCE
    clients += [world.connect() for _ in range(10)]
    assert sum(are_open(clients)) == 3


def test_the_collector_never_has_many_connections_to_look_at() -> None:
    """Where as many objects go as come, it would not begin by itself (decision 0019)."""
    world = world_of(**{LIMIT.replace(".", "_"): "100000"})
    held = [world.connect()]
    gc.collect()
    gc.disable()
    try:
        held += [world.connect() for _ in range(10 * CONNECTIONS_PER_COLLECTION)]
        young = len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1))
    finally:
        gc.enable()
    assert young < len(held)


def test_ten_thousand_by_default() -> None:
    assert SaslWorld().server.logins.most == 10_000
    with pytest.raises(ConfigError):
        ServerConfig({LIMIT: "0"})
