"""A thousand topics created by one request: how long that holds up the other clients of the broker.

`python -m benchmarks.topics FILE` serves with every step of the event loop timed, and writes the longest to FILE when
it is terminated. It runs on asyncio's own loop, whose steps can be timed.
"""

import asyncio
import gc
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import processes
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.raw_client import VERSIONS, RawClient, described
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPICS = 1_000
ROUNDS = 3
NAMES = [f"thousand-{number}" for number in range(TOPICS)]


def figures() -> list[Figure]:
    ways = (("Metadata", _ask_for_metadata), ("CreateTopics", _create))
    return [
        Figure(
            f"{TOPICS:,} topics by one {name} request: longest step",
            NO_BASELINE,
            "ms",
            [(_longest_ms(ask), 1.0) for _ in range(ROUNDS)],
            at_most=20,
        )
        for name, ask in ways
    ]


def _longest_ms(ask: Callable[[RawClient], None]) -> float:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        longest = Path(directory) / "longest"
        with processes.running([sys.executable, "-m", "benchmarks.topics", str(longest)]) as server:
            client = RawClient(server.port)
            described(client)
            ask(client)
            client.close()
        return float(longest.read_text())


def _ask_for_metadata(client: RawClient) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES])
    response = client.call(request, MetadataResponse, VERSIONS["Metadata"])
    assert isinstance(response, MetadataResponse)
    assert not any(topic.error_code for topic in response.topics)


def _create(client: RawClient) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
    response = client.call(request, CreateTopicsResponse, VERSIONS["CreateTopics"])
    assert isinstance(response, CreateTopicsResponse)
    assert not any(topic.error_code for topic in response.topics)


async def _serve_timed() -> float:
    from ottla import Broker

    longest_s = 0.0
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal longest_s
        started = time.perf_counter()
        run(handle)
        longest_s = max(longest_s, time.perf_counter() - started)

    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    async with Broker() as broker:
        # As `ottla serve` does.
        gc.freeze()
        asyncio.Handle._run = timed  # type: ignore[method-assign]
        print(f"ready bootstrap={broker.bootstrap}", flush=True)
        await terminated.wait()
        return longest_s


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(str(asyncio.run(_serve_timed()) * 1e3))
