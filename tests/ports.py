"""Ports for servers that tests stop and start again."""

import os
import random
import socket

# Below the ports that the system hands out by itself: while a server is down no other process gets its port.
PORTS = range(20_000, 32_000)
# Servers that are down own theirs.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that stay free while their owner is down; no port is given out twice."""
    candidates = _ports_of_this_worker()
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(candidates)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            ports.append(port)
    return ports


def _ports_of_this_worker() -> range:
    """Each of the processes that share a test run (pytest-xdist) has ports of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return PORTS[worker % workers :: workers]
