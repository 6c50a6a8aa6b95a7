"""What scripts start or wait for beside a broker: `cub`, which waits for one, and ZooKeeper.

There is no ZooKeeper. Programs that start Kafka's old images start one all the same, and some wait until its port
accepts connections. So there is a port, and behind it nothing: a connection is closed as soon as it is there.
"""

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from ottla.broker.config.options import ConfigError
from ottla.broker.config.properties import parse_properties
from ottla.cli.kafka_image.tool_options import ToolError, run_ottla

CUB = "cub"
START, STOP = "zookeeper-server-start", "zookeeper-server-stop"
CLIENT_PORT = "clientPort"
DEFAULT_PORT = 2181
BACKLOG = 16


def start_zookeeper(arguments: Sequence[str]) -> int:
    """Of the file of properties, which comes last, only the port counts. It ends with a signal. Raises ToolError."""
    port = _client_port(arguments)
    try:
        listening = socket.create_server(("", port), backlog=BACKLOG)
    except OSError as error:
        raise ToolError(f"{START}: cannot listen on port {port}: {error.strerror}") from None
    print(
        f"{START}: there is no ZooKeeper in this image, and no broker that needs one; port {port} is open", flush=True
    )
    with listening:
        while True:
            connection, _ = listening.accept()
            connection.close()


def stop_zookeeper(_: Sequence[str]) -> int:
    print(f"{STOP}: there is no ZooKeeper in this image")
    return 0


def _client_port(arguments: Sequence[str]) -> int:
    """Raises ToolError."""
    if not arguments:
        return DEFAULT_PORT
    path = Path(arguments[-1])
    try:
        text = parse_properties(path.read_text(encoding="utf-8")).get(CLIENT_PORT, str(DEFAULT_PORT)).strip()
    except OSError as error:
        raise ToolError(f"{START}: cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, ConfigError):
        raise ToolError(f"{START}: {path} is not a file of properties in UTF-8") from None
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ToolError(f"{START}: {CLIENT_PORT}={text} is no port")
    return int(text)


def cub(arguments: Sequence[str]) -> int:
    """`cub kafka-ready [-b HOST:PORT] [-c FILE] BROKERS SECONDS` waits for an answer, `cub zk-ready` for nothing.
    Raises ToolError."""
    action, *rest = arguments or [""]
    if action == "zk-ready":
        return 0
    if action != "kafka-ready":
        raise ToolError(f"{CUB} has no {action!r} here, only kafka-ready and zk-ready")
    where: list[str] = []
    while rest and rest[0] in ("-b", "-c", "--bootstrap_broker_list", "--config"):
        option, *rest = rest
        if not rest:
            raise ToolError(f"{CUB}: {option} needs a value")
        where += ["--bootstrap" if option in ("-b", "--bootstrap_broker_list") else "--command-config", rest.pop(0)]
    if len(rest) != 2 or not all(word.isdecimal() for word in rest):
        raise ToolError(f"{CUB} kafka-ready needs a number of brokers and a number of seconds")
    if int(rest[0]) > 1:
        raise ToolError(f"{CUB} kafka-ready: there is one broker in this image, and not {rest[0]}")
    deadline = time.monotonic() + int(rest[1])
    while True:
        try:
            return run_ottla("ping", "--request-timeout", "1", *where)
        except ToolError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
