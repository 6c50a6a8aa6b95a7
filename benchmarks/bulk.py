"""Bytes per second and processor time per gigabyte, one partition, one connection, against raw pipes."""

import socket
import struct
import tempfile
import time
from pathlib import Path

from benchmarks import processes
from benchmarks.figure import Figure, interleave
from benchmarks.raw_client import RawClient, batch_of_size, create_topic, fetch_frame, produce_frame

ROUNDS = 5
BATCH_BYTES = 1 << 20
BATCHES = 384
WINDOW = 5
TOPIC_SETTINGS = {"log_segment_bytes": str(1 << 30)}


def figures() -> list[Figure]:
    processes.pin_client()
    return [*_produce(), *_consume()]


def _produce() -> list[Figure]:
    records = batch_of_size(BATCH_BYTES, 1024)
    frame_bytes = len(records) * BATCHES
    with processes.broker(**TOPIC_SETTINGS) as ours, _file() as path, processes.baseline("sink", path) as pipe:
        client = RawClient(ours.port)
        topics = iter(f"bulk-{i}" for i in range(100))
        costs: list[tuple[float, float]] = []

        def produce_ours() -> float:
            # A topic of its own each round, as the pipe takes a new file: both write to pages they must first get.
            topic = next(topics)
            create_topic(client, topic)
            frame = produce_frame(topic, records)
            before, started = ours.cpu_seconds(), time.perf_counter()
            client.pipeline(frame, BATCHES, WINDOW)
            seconds = time.perf_counter() - started
            costs.append((ours.cpu_seconds() - before, 0.0))
            return frame_bytes / seconds / 1e6

        def produce_raw() -> float:
            before = pipe.cpu_seconds()
            speed = through_sink(pipe.port, records) / 1e6
            costs[-1] = (costs[-1][0], pipe.cpu_seconds() - before)
            return speed

        pairs = interleave(ROUNDS, produce_ours, produce_raw)
        per_gigabyte = [(a / frame_bytes * 1e9, b / frame_bytes * 1e9) for a, b in costs[1:]]
    baseline = "raw recv + CRC + write pipe"
    return [
        Figure("bulk produce, 1 KiB records, one connection", baseline, "MB/s", pairs, at_least=0.70),
        Figure("bulk produce, processor seconds per GB", baseline, "s/GB", per_gigabyte, at_most=1.1),
    ]


def through_sink(port: int, chunk: bytes, count: int = BATCHES) -> float:
    """Bytes per second."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        started = time.perf_counter()
        connection.sendall(struct.pack(">q", len(chunk) * count))
        for _ in range(count):
            connection.sendall(chunk)
        connection.recv(1)
        return len(chunk) * count / (time.perf_counter() - started)


def _consume() -> list[Figure]:
    records = batch_of_size(BATCH_BYTES, 1024)
    total = len(records) * BATCHES
    count = struct.unpack_from(">i", records, 57)[0]
    with processes.broker(**TOPIC_SETTINGS) as ours, _file() as path:
        Path(path).write_bytes(records * BATCHES)
        with processes.baseline("source", path) as pipe:
            client = RawClient(ours.port)
            create_topic(client, "bulk")
            client.pipeline(produce_frame("bulk", records), BATCHES, WINDOW)
            frames = [fetch_frame("bulk", i * count, BATCH_BYTES) for i in range(BATCHES)]
            seconds = interleave(ROUNDS, lambda: fetch_all(client, frames), lambda: _drain(pipe.port, total))
    pairs = [(total / ours_s / 1e6, total / raw_s / 1e6) for ours_s, raw_s in seconds]
    return [Figure("bulk consume, 1 KiB records", "raw pread → socket pipe", "MB/s", pairs, at_least=0.80)]


def fetch_all(client: RawClient, frames: list[bytes]) -> float:
    """Two fetches on their way at a time: while one answer travels, the next is being read."""
    started = time.perf_counter()
    client.socket.sendall(frames[0])
    for following in [*frames[1:], b""]:
        if following:
            client.socket.sendall(following)
        answer = client.receive()
        assert len(answer) > BATCH_BYTES // 2, "the fetch brought no batch"
    return time.perf_counter() - started


def _drain(port: int, total: int) -> float:
    buffer = memoryview(bytearray(8 << 20))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        started = time.perf_counter()
        connection.sendall(struct.pack(">q", total))
        remaining = total
        while remaining:
            remaining -= connection.recv_into(buffer[: min(len(buffer), remaining)])
        return time.perf_counter() - started


class _file:  # noqa: N801 - reads as the context it is.
    def __enter__(self) -> str:
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-bench-")
        return str(Path(self._directory.name) / "pipe")

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()
