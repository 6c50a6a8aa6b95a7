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
    return [port for _ in range(count) for port in consecutive_free_ports(1)]


def consecutive_free_ports(count: int) -> range:
    """The same, side by side."""
    candidates = _ports_of_this_worker()
    while True:
        first = random.choice(candidates[: len(candidates) - count + 1])
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ports_of_this_worker() -> range:
    """Each of the processes that share a test run (pytest-xdist) has ports of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = len(PORTS) // workers
    return PORTS[worker % workers * share :][:share]
