"""Server properties of listeners, connections, sockets and requests."""

import re
from collections.abc import Callable

from ottla.broker.config.options import INT_MAX, Kind, Option, Update, integer, long, optional_text, text_option
from ottla.cluster.image import Listener
from ottla.protocol.address import is_everywhere, parse_address

PLAINTEXT = "PLAINTEXT"
"""A security protocol, and the name of the default listener."""
SSL = "SSL"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
WITH_SASL = (SASL_PLAINTEXT, SASL_SSL)
WITH_TLS = (SSL, SASL_SSL)

_NAME = re.compile(r"[A-Za-z0-9_-]+")

_DYNAMIC = Update.CLUSTER_WIDE


class ListenerOptions:
    listeners = Option[tuple[Listener, ...]](
        "listeners",
        Kind.LIST,
        (),
        "Addresses on which the broker accepts connections, each with a listener name. The default is one listener, "
        f"{PLAINTEXT}, at the address of --listen.",
        parse=lambda text: _listeners(text, _listened_on),
        bounds="a list of NAME://HOST:PORT",
        update=Update.READ_ONLY,
    )
    advertised_listeners = Option[tuple[Listener, ...]](
        "advertised.listeners",
        Kind.LIST,
        (),
        "The address of each listener as clients and other brokers reach it: a client gets the addresses of the "
        "listener it is connected to. The default is the address of the listener itself, or --advertise.",
        parse=lambda text: _listeners(text, _advertised),
        bounds="a list of NAME://HOST:PORT",
        update=Update.READ_ONLY,
    )
    inter_broker_listener_name = optional_text(
        "inter.broker.listener.name",
        "Name of the listener that brokers use among each other; by default the first listener. A fetch is "
        "accepted as a follower's on this listener only.",
    )
    listener_security_protocol_map = Option[tuple[str, ...]](
        "listener.security.protocol.map",
        Kind.LIST,
        tuple(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        f"Security protocol of each listener: {', '.join(PROTOCOLS)}.",
        parse=lambda text: _protocol_map(text),
        bounds="a list of NAME:PROTOCOL",
        update=Update.READ_ONLY,
    )


def _listeners(text: str, check: Callable[[Listener], None]) -> tuple[Listener, ...]:
    found: dict[str, Listener] = {}
    for part in text.split(",") if text else ():
        listener = _listener(part.strip())
        check(listener)
        if listener.name in found:
            raise ValueError(f"{listener.name} is given twice")
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
    """Every address is valid; port 0 is any free port."""


def _advertised(listener: Listener) -> None:
    if is_everywhere(listener.host) or listener.port == 0:
        raise ValueError(f"{listener} is not an address that clients can connect to")


def _protocol_map(text: str) -> tuple[str, ...]:
    """Protocols may be mapped that no listener uses, as in Kafka's sample."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, colon, protocol = (word.strip() for word in part.partition(":"))
        if not (colon and _NAME.fullmatch(name) and protocol):
            raise ValueError(f"'{part.strip()}' is not NAME:PROTOCOL")
        if protocol.upper() not in PROTOCOLS:
            raise ValueError(f"{protocol} of {name} is none of the protocols {', '.join(PROTOCOLS)}")
        found[name.upper()] = protocol.upper()
    return tuple(f"{name}:{protocol}" for name, protocol in found.items())


def protocols(protocol_map: tuple[str, ...]) -> dict[str, str]:
    """The protocol of each listener, by its name."""
    pairs = (each.partition(":") for each in protocol_map)
    return {name: protocol for name, _, protocol in pairs}


def _per_ip_overrides(text: str) -> str:
    parse_per_ip_overrides(text)
    return text


def parse_per_ip_overrides(text: str) -> dict[str, int]:
    """`host:count,host:count` as a mapping; the host may be an IPv6 address, the count follows its last colon."""
    limits: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = item.rpartition(":")
        if not (colon and host and count.isascii() and count.isdigit()):
            raise ValueError("expected a list of HOST:COUNT")
        limits[host.strip("[]")] = int(count)
    return limits


class NetworkOptions:
    socket_send_buffer_bytes = integer(
        "socket.send.buffer.bytes",
        102400,
        "SO_SNDBUF of a connection's socket, in bytes. The operating system's default applies when this is not "
        "set or -1.",
        at_least=-1,
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes",
        102400,
        "SO_RCVBUF of a connection's socket, in bytes. The operating system's default applies when this is not "
        "set or -1.",
        at_least=-1,
    )
    socket_request_max_bytes = integer(
        "socket.request.max.bytes",
        104857600,
        "Maximum size of a request in bytes. A connection that announces a larger one is closed.",
        at_least=1,
    )
    socket_listen_backlog_size = integer(
        "socket.listen.backlog.size",
        50,
        "Maximum number of connections that wait in the operating system to be accepted.",
        at_least=1,
    )
    connections_max_idle_ms = long(
        "connections.max.idle.ms",
        600000,
        "Idle connections, which neither send a request nor read a response, are closed after this many milliseconds.",
        at_least=1,
    )
    max_connections = integer(
        "max.connections", INT_MAX, "Maximum number of open connections.", at_least=0, update=_DYNAMIC
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip",
        INT_MAX,
        "Maximum number of open connections from one IP address.",
        at_least=0,
        update=_DYNAMIC,
    )
    max_connections_per_ip_overrides = text_option(
        "max.connections.per.ip.overrides",
        "",
        "Limits for single addresses in place of max.connections.per.ip, as HOST:COUNT,HOST:COUNT.",
        parse=_per_ip_overrides,
        bounds="a list of HOST:COUNT",
        update=_DYNAMIC,
    )
    ottla_max_unauthenticated_connections = integer(
        "ottla.max.unauthenticated.connections",
        10000,
        "Maximum number of connections whose TLS handshake or login is not done yet, and never more than half of "
        "max.connections. Beyond it the oldest of them is closed. A listener that only brokers use does not count.",
        at_least=1,
        update=_DYNAMIC,
    )
    max_connection_creation_rate = integer(
        "max.connection.creation.rate",
        INT_MAX,
        "Maximum number of connections accepted per second, over a window of quota.window; further connections wait.",
        at_least=0,
        update=_DYNAMIC,
    )
    quota_window_num = integer(
        "quota.window.num", 11, "Number of samples of a window over which client quotas are measured.", at_least=1
    )
    quota_window_size_seconds = integer(
        "quota.window.size.seconds",
        1,
        "Length of a sample of a window over which client quotas are measured, in seconds.",
        at_least=1,
    )
    controller_quota_window_num = integer(
        "controller.quota.window.num",
        11,
        "Number of samples of a window whose changes of topics may be made at once, by controller_mutation_rate.",
        at_least=1,
    )
    controller_quota_window_size_seconds = integer(
        "controller.quota.window.size.seconds", 1, "Length of a sample of such a window, in seconds.", at_least=1
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        57671680,
        "Maximum size of a fetch response in bytes, whatever limit the client gives. The first batch is always "
        "returned whole. A response has at most 4 MiB beside it, so that other requests need not wait for long. "
        "Responses that clients have not read yet share 48 MiB of memory and are smaller when it is in use.",
        at_least=1024,
    )
    max_incremental_fetch_session_cache_slots = integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Maximum number of fetch sessions; those of consumers use at most 48 MiB of memory. A client without a "
        "session sends its full list of partitions in every request.",
        at_least=0,
    )
    broker_rack = optional_text("broker.rack", "The rack of this broker, which clients see in its metadata.")
