"""How soon a broker serves, and how much memory it takes."""

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import processes
from benchmarks.figure import NO_BASELINE, Figure, interleave
from benchmarks.raw_client import RawClient, batch, create_topic, produce_frame

ROUNDS = 9
CONNECTIONS = 2_000


def figures() -> list[Figure]:
    return [_start(), *_memory()]


def _start() -> Figure:
    produce = produce_frame("start", batch(1, 100))
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        with processes.running(processes.broker_command(directory)) as server:
            create_topic(RawClient(server.port), "start")

        def ours() -> float:
            started = time.perf_counter()
            with processes.running(processes.broker_command(directory)) as server:
                client = RawClient(server.port)
                client.socket.sendall(produce)
                client.receive()
                seconds = time.perf_counter() - started
                client.close()
            return seconds * 1e3

        pairs = interleave(ROUNDS, ours, _import_loop)
    return Figure("start: exec to first successful produce", "import asyncio, uvloop", "ms", pairs, at_most=2.5)


def _import_loop() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio, uvloop"], check=True)
    return (time.perf_counter() - started) * 1e3


def _memory() -> list[Figure]:
    idle, per_connection = [], []
    for _ in range(3):
        with processes.fully_started_broker() as ours, processes.baseline("idle") as bare:
            client = RawClient(ours.port)
            create_topic(client, "t")
            client.socket.sendall(produce_frame("t", batch(1, 100)))
            client.receive()
            idle.append((ours.resident_bytes() / 2**20, bare.resident_bytes() / 2**20))
            per_connection.append((bytes_per_connection(ours) / 1024, 1.0))
    bare_process = "asyncio + uvloop process"
    return [
        Figure("memory of an idle broker", bare_process, "MiB", idle, at_most=2.5),
        Figure("memory per idle connection", NO_BASELINE, "KiB", per_connection, at_most=4),
    ]


def bytes_per_connection(server: processes.Server) -> float:
    """Growth per connection that has asked for the API versions once and is silent since."""
    api_versions = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
    before = server.resident_bytes()
    connections = []
    for _ in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(api_versions)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
        connections.append(connection)
    grown = server.resident_bytes() - before
    for connection in connections:
        connection.close()
    return grown / CONNECTIONS


assert Path("/proc/self/schedstat").exists(), "the benchmarks read /proc, as Linux has it"
