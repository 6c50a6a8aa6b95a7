"""Server properties of listeners: where a broker accepts connections, by name, and what clients are told of it."""

import re
from collections.abc import Callable

from ottla.broker.config.options import Kind, Option, Update, optional_text
from ottla.cluster.image import Listener
from ottla.protocol.address import parse_address

PLAINTEXT = "PLAINTEXT"
"""The only security protocol; and the name of the one listener there is where only an address was given."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_EVERYWHERE = ("", "0.0.0.0", "::")


class ListenerOptions:
    listeners = Option[tuple[Listener, ...]](
        "listeners",
        Kind.LIST,
        (),
        "Where connections are accepted, each place under a name of its own. Without it there is one listener, "
        f"{PLAINTEXT}, at the address given as --listen.",
        parse=lambda text: _listeners(text, _listened_on),
        bounds="a list of NAME://HOST:PORT",
        update=Update.READ_ONLY,
    )
    advertised_listeners = Option[tuple[Listener, ...]](
        "advertised.listeners",
        Kind.LIST,
        (),
        "The address of each listener as clients and other brokers reach it: a client gets the addresses of the "
        "listener it is connected to. The default is where the listener is, or --advertise.",
        parse=lambda text: _listeners(text, _advertised),
        bounds="a list of NAME://HOST:PORT",
        update=Update.READ_ONLY,
    )
    inter_broker_listener_name = optional_text(
        "inter.broker.listener.name",
        "The listener by which brokers reach each other; the first one unless it is set. Only there a fetch can be "
        "that of a follower.",
    )
    listener_security_protocol_map = Option[tuple[str, ...]](
        "listener.security.protocol.map",
        Kind.LIST,
        (f"{PLAINTEXT}:{PLAINTEXT}",),
        f"The security protocol of each listener; {PLAINTEXT} is the only one there is.",
        parse=lambda text: _protocols(text),
        bounds=f"a list of NAME:{PLAINTEXT}",
        update=Update.READ_ONLY,
    )


def _listeners(text: str, check: Callable[[Listener], None]) -> tuple[Listener, ...]:
    found: dict[str, Listener] = {}
    for part in text.split(",") if text else ():
        listener = _listener(part.strip())
        check(listener)
        if listener.name in found:
            raise ValueError(f"{listener.name} is there twice")
        found[listener.name] = listener
    return tuple(found.values())


def _listener(text: str) -> Listener:
    """Names are in capitals, whatever they are written in, as with Kafka."""
    name, separator, address = text.partition("://")
    try:
        if not separator or not _NAME.fullmatch(name):
            raise ValueError
        return Listener(name.upper(), *parse_address(address, port_min=0, host_required=False))
    except ValueError:
        raise ValueError(f"'{text}' is not NAME://HOST:PORT") from None


def _listened_on(listener: Listener) -> None:
    """Every address will do, port 0 being any free one."""


def _advertised(listener: Listener) -> None:
    if listener.host in _EVERYWHERE or listener.port == 0:
        raise ValueError(f"{listener} is no address that clients can connect to")


def _protocols(text: str) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for part in text.split(","):
        name, colon, protocol = (word.strip() for word in part.partition(":"))
        if not (colon and _NAME.fullmatch(name) and protocol):
            raise ValueError(f"'{part.strip()}' is not NAME:{PLAINTEXT}")
        if protocol.upper() != PLAINTEXT:
            raise ValueError(f"{protocol} of {name} is not supported, only {PLAINTEXT} is")
        found[name.upper()] = PLAINTEXT
    return tuple(f"{name}:{protocol}" for name, protocol in found.items())
