"""Which listeners a broker is asked for, by Kafka's properties or by an address."""

import pytest

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.listeners import Listeners, WantedListener
from ottla.cluster.image import Listener

TWO = {
    "listeners": "INTERNAL://:9092,HOST://0.0.0.0:19092",
    "advertised.listeners": "INTERNAL://ottla1:9092,HOST://localhost:19092",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,HOST:PLAINTEXT",
}
FOR_ALL = (
    "listener.name.host.plain.ssl.keystore.location: it cannot be set for one listener alone, but for all as "
    "ssl.keystore.location"
)
PROTOCOLS = "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
BOTH_SAY = "both say which listener brokers use: give one of them"


def config(**changed: str) -> ServerConfig:
    return ServerConfig(TWO | {name.replace("_", "."): value for name, value in changed.items()})


def test_each_listener_has_its_own_address_for_clients() -> None:
    listeners = Listeners(config(inter_broker_listener_name="host"))

    assert listeners.wanted == [
        WantedListener("INTERNAL", "", 9092, ("ottla1", 9092)),
        WantedListener("HOST", "0.0.0.0", 19092, ("localhost", 19092)),
    ]
    assert listeners.inter_broker == "HOST"


def test_an_address_alone_is_one_listener_named_plaintext() -> None:
    listeners = Listeners(ServerConfig(), ("127.0.0.1", 0), ("broker.example", 9092))

    assert listeners.wanted == [WantedListener("PLAINTEXT", "127.0.0.1", 0, ("broker.example", 9092))]
    assert listeners.inter_broker == "PLAINTEXT"


def test_brokers_use_the_first_listener_unless_another_is_named() -> None:
    assert Listeners(config()).inter_broker == "INTERNAL"


def test_advertise_shorthand_becomes_an_advertised_listener() -> None:
    listeners = Listeners(ServerConfig({"advertised.listeners": "PLAINTEXT://broker.example:9092"}))

    assert listeners.wanted == [WantedListener("PLAINTEXT", "127.0.0.1", 9092, ("broker.example", 9092))]


def test_listeners_are_read_and_shown_as_kafka_writes_them() -> None:
    parsed = ServerConfig({"listeners": " plaintext://[::1]:9092 "})

    assert parsed.listeners == (Listener("PLAINTEXT", "::1", 9092),)
    assert str(parsed.listeners[0]) == "PLAINTEXT://[::1]:9092"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"listeners": "A://h:1,"}, "listeners=A://h:1,: '' is not NAME://HOST:PORT"),
        ({"listeners": "A://h"}, "listeners=A://h: 'A://h' is not NAME://HOST:PORT"),
        ({"listeners": "A://h:70000"}, "listeners=A://h:70000: 'A://h:70000' is not NAME://HOST:PORT"),
        ({"listeners": "A://::1:9092"}, "listeners=A://::1:9092: 'A://::1:9092' is not NAME://HOST:PORT"),
        ({"listeners": "A://h:1,a://h:2"}, "listeners=A://h:1,a://h:2: A is given twice"),
        (
            {"advertised.listeners": "HOST://0.0.0.0:1"},
            "advertised.listeners=HOST://0.0.0.0:1: HOST://0.0.0.0:1 is not an address that clients can connect to",
        ),
        (
            {"listener.security.protocol.map": "HOST:TLS"},
            f"listener.security.protocol.map=HOST:TLS: TLS of HOST is none of the protocols {PROTOCOLS}",
        ),
        (
            {"listener.security.protocol.map": "INTERNAL"},
            "listener.security.protocol.map=INTERNAL: 'INTERNAL' is not NAME:PROTOCOL",
        ),
        (
            {"listener.name.host.ssl.engine.factory.class": "x"},
            "listener.name.host.ssl.engine.factory.class: Java classes cannot be loaded",
        ),
        (
            {"listener.name.host.plain.ssl.keystore.location": "x"},
            FOR_ALL,
        ),
    ],
)
def test_what_cannot_be_a_listener_is_refused(changed: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ServerConfig(TWO | changed)

    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("settings", "listen", "advertise", "sentence"),
    [
        (TWO, ("127.0.0.1", 9092), None, "listeners and --listen both say where to listen: give one of them"),
        (
            {"listeners": "PLAINTEXT://:9092"},
            None,
            ("h", 1),
            "--advertise is for --listen alone: beside listeners, use advertised.listeners",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://h:9092"},
            None,
            ("h", 1),
            "--advertise is for --listen alone: beside listeners, use advertised.listeners",
        ),
        (
            TWO | {"listener.security.protocol.map": "INTERNAL:PLAINTEXT"},
            None,
            None,
            "listener.security.protocol.map has no protocol for the listener HOST",
        ),
        (
            TWO | {"advertised.listeners": "HOST://h:9092"},
            None,
            None,
            "advertised.listeners has no address for the listener INTERNAL",
        ),
        (
            TWO | {"advertised.listeners": "OTHER://h:9092"},
            None,
            None,
            "advertised.listeners has OTHER, which is not among the listeners INTERNAL, HOST",
        ),
        (
            TWO | {"inter.broker.listener.name": "EXTERNAL"},
            None,
            None,
            "inter.broker.listener.name=EXTERNAL is not among the listeners INTERNAL, HOST",
        ),
        (
            TWO | {"security.inter.broker.protocol": "PLAINTEXT"},
            None,
            None,
            "security.inter.broker.protocol=PLAINTEXT is not among the listeners INTERNAL, HOST",
        ),
        (
            TWO | {"security.inter.broker.protocol": "HOST", "inter.broker.listener.name": "HOST"},
            None,
            None,
            f"inter.broker.listener.name and security.inter.broker.protocol {BOTH_SAY}",
        ),
        (
            TWO | {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,HOST:SSL"},
            None,
            None,
            "listener.name.host.ssl.keystore.location: the listener HOST has TLS, which needs a key and a certificate",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, str], listen: tuple[str, int] | None, advertise: tuple[str, int] | None, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Listeners(ServerConfig(settings), listen, advertise)

    assert str(refused.value) == sentence
