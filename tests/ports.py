"""Ports for servers that tests stop and start again."""

import os
import random
import socket

# Below the ports that the system hands out by itself: while a server is down no other process gets its port.
PORTS = range(20_000, 32_000)
# Of servers that listen side by side.
CONSECUTIVE_PORTS = range(18_000, 20_000)
# Servers that are down own theirs.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that stay free while their owner is down; no port is given out twice."""
    worker, workers = _this_worker()
    candidates = PORTS[worker::workers]
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(candidates)
        if port not in _given and _is_free(port):
            _given.add(port)
            ports.append(port)
    return ports


def consecutive_free_ports(count: int) -> range:
    """The same, side by side."""
    worker, workers = _this_worker()
    share = len(CONSECUTIVE_PORTS) // workers
    candidates = CONSECUTIVE_PORTS[worker * share : (worker + 1) * share]
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


def _this_worker() -> tuple[int, int]:
    """Which of how many processes that share a test run (pytest-xdist); each has ports of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return worker % workers, workers
