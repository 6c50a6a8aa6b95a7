"""Server properties of sockets, connections and requests."""

from ottla.broker.config.options import INT_MAX, Update, integer, long, optional_text, text_option

_DYNAMIC = Update.CLUSTER_WIDE


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
        "Send buffer of a connection's socket (SO_SNDBUF). "
        "Unless this is set, and with -1, the operating system decides.",
        at_least=-1,
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes",
        102400,
        "Receive buffer of a connection's socket (SO_RCVBUF). "
        "Unless this is set, and with -1, the operating system decides.",
        at_least=-1,
    )
    socket_request_max_bytes = integer(
        "socket.request.max.bytes",
        104857600,
        "Size of the largest request. A connection that announces a larger one is closed.",
        at_least=1,
    )
    socket_listen_backlog_size = integer(
        "socket.listen.backlog.size",
        50,
        "Connections the operating system holds that the broker has not accepted yet.",
        at_least=1,
    )
    connections_max_idle_ms = long(
        "connections.max.idle.ms",
        600000,
        "Idle connections are closed after this many milliseconds: they neither send a request nor read an answer.",
        at_least=1,
    )
    max_connections = integer(
        "max.connections", INT_MAX, "The most connections at one time.", at_least=0, update=_DYNAMIC
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip", INT_MAX, "The most connections from one address.", at_least=0, update=_DYNAMIC
    )
    max_connections_per_ip_overrides = text_option(
        "max.connections.per.ip.overrides",
        "",
        "Addresses with a limit of their own, as HOST:COUNT,HOST:COUNT.",
        parse=_per_ip_overrides,
        bounds="a list of HOST:COUNT",
        update=_DYNAMIC,
    )
    max_connection_creation_rate = integer(
        "max.connection.creation.rate",
        INT_MAX,
        "The most connections accepted per second; further ones wait.",
        at_least=0,
        update=_DYNAMIC,
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        57671680,
        "Size of the largest fetch response, whatever the client asks for. One batch is always sent whole. "
        "Responses that clients have not read share 48 MiB, and are smaller when that is in use.",
        at_least=1024,
    )
    max_incremental_fetch_session_cache_slots = integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "The most fetch sessions kept; those of consumers take 48 MiB of memory at most. "
        "Clients without one send their whole list of partitions each time.",
        at_least=0,
    )
    broker_rack = optional_text("broker.rack", "The rack of this broker, which clients see in its metadata.")
