"""The longest step of a broker's event loop while it has much to do: `python -m benchmarks steps`.

A step is one callback of asyncio's own loop, which can be timed. Its processor time is that of the loop's thread alone,
so a machine that is busy with other things does not falsify it; the time that passed also has the waits for other
threads of the broker, and is worth something on a quiet machine only.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.groups import GROUP, MEMBERS, Fleet
from benchmarks.raw_client import VERSIONS, RawClient, find_coordinator
from benchmarks.sparse_log import BATCH_BYTES, NOW_MS, sparse_log
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.logging import LazyLog
from ottla.cli.operations.broker_process import tune_garbage_collector
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ottla.protocol.records.batch import parse_batch_header
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import CLEAN_SHUTDOWN_FILE

ROUNDS = 3
AT_MOST_MS = 20
TIMEOUT_S = 120
COMPACTED_BYTES = COPIED_BYTES = 64 << 20
COMPACTED_KEYS = 50_000
COUNT = 1_000
PRODUCERS = 500_000
ASKED_PARTITIONS = 100_000
MAINTAINED_PARTITIONS = 2_000
# A record of the log would import structlog, which `ottla serve` does in a thread.
QUIET = LazyLog(level="error")
SEGMENT_BYTES = LogConfig().segment_bytes - (1 << 20)


class Steps:
    """The longest steps so far, by the time they took of the thread's processor, and by what passed."""

    def __init__(self) -> None:
        self.processor_ms = 0.0
        self.passed_ms = 0.0
        self.total_s = 0.0
        """Of the thread's processor, of all steps together."""

    @contextmanager
    def timed(self) -> Iterator[None]:
        began, began_processor = time.perf_counter(), time.thread_time()
        yield
        processor_s = time.thread_time() - began_processor
        self.total_s += processor_s
        self.processor_ms = max(self.processor_ms, processor_s * 1e3)
        self.passed_ms = max(self.passed_ms, (time.perf_counter() - began) * 1e3)

    @contextmanager
    def of_loop(self) -> Iterator[None]:
        """All that the loop runs from here on."""
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            with self.timed():
                run(handle)

        thresholds = gc.get_threshold()
        gc.collect()
        tune_garbage_collector()
        asyncio.Handle._run = timed  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]
            gc.unfreeze()
            gc.set_threshold(*thresholds)


def figures() -> list[Figure]:
    return [figure for name, measure in STORIES.items() for figure in figures_of(name, measure)]


def figures_of(name: str, measure: Callable[[], Steps]) -> list[Figure]:
    rounds = [measure() for _ in range(ROUNDS)]
    processor = [(steps.processor_ms, 1.0) for steps in rounds]
    passed = [(steps.passed_ms, 1.0) for steps in rounds]
    name = f"longest loop step while {name}"
    return [
        Figure(f"{name}, processor", NO_BASELINE, "ms", processor, at_most=AT_MOST_MS),
        Figure(f"{name}, time passed", NO_BASELINE, "ms", passed),
    ]


# Stories of one log.


def _truncation() -> Steps:
    """What the loop does of it, with an idempotent producer in what is removed."""
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        log = sparse_log(Path(name) / "t-0", SEGMENT_BYTES)
        with steps.timed():
            log.truncate_to(log.log_end_offset - 100)
        with steps.timed():
            log.begin_restore()
        log.release()
    return steps


def _compaction() -> Steps:
    async def story(broker: Broker, steps: Steps) -> None:
        await create_topics(broker, ["t"], {"cleanup.policy": "compact", "segment.bytes": str(COMPACTED_BYTES // 4)})
        partition = broker.replicas.partition("t", 0)
        _fill(partition.log, COMPACTED_BYTES)
        partition.high_watermark = partition.log.log_end_offset
        with steps.of_loop():
            await until(lambda: partition.log.cleaned_offset > 0)
            await asyncio.sleep(0.1)

    return in_broker(story, {"log.cleaner.backoff.ms": "1000"})


def _fill(log: Log, size: int) -> None:
    value = bytes(1000)
    for first in range(0, size // len(value), 100):
        keys = (b"%d" % (number % COMPACTED_KEYS) for number in range(first, first + 100))
        records = [Record(timestamp=NOW_MS, key=key, value=value) for key in keys]
        log.append_as_leader(memoryview(build_batch(records)), leader_epoch=0, now_wall_ms=NOW_MS)
        log.write_pending(now_wall_ms=NOW_MS)


# Stories of many producers.


def _roll_with_producers() -> Steps:
    """The snapshot is written, and then the topic is deleted."""

    def delete(client: RawClient) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000)
        response = client.call(request, DeleteTopicsResponse, 6)
        assert isinstance(response, DeleteTopicsResponse)
        assert not response.responses[0].error_code

    async def story(broker: Broker, steps: Steps) -> None:
        log = await _log_of_producers(broker)
        with steps.of_loop():
            broker.runtime.soon(log.roll)
            await until((log.directory / f"{1:020}.snapshot").exists)
            await call(broker, delete)
            await until(lambda: not list(broker.replicas))

    return in_broker(story)


def _producer_expiry() -> Steps:
    async def story(broker: Broker, steps: Steps) -> None:
        log = await _log_of_producers(broker)
        with steps.of_loop():
            await until(lambda: not len(log.producers))

    return in_broker(story, {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "1000"})


async def _log_of_producers(broker: Broker) -> Log:
    """Each has written one batch; the log has one in all."""
    await create_topics(broker, ["t"], {})
    log = broker.replicas.partition("t", 0).log
    batch = build_batch([Record(timestamp=NOW_MS, key=None, value=b"")], producer_epoch=0, base_sequence=0)
    header = parse_batch_header(memoryview(batch))
    wall_ms = broker.runtime.clock.wall_ms()
    for producer_id in range(PRODUCERS):
        log.producers.update(header._replace(producer_id=producer_id), 0, wall_ms)
        log.producers.confirm()
    log.append_as_leader(memoryview(batch), leader_epoch=0, now_wall_ms=wall_ms)
    log.write_pending(now_wall_ms=wall_ms)
    return log


# Stories of many topics.


def _creation() -> Steps:
    async def story(broker: Broker, steps: Steps) -> None:
        with steps.of_loop():
            await create_topics(broker, _names(), {})

    return in_broker(story)


def _auto_creation() -> Steps:
    def ask(client: RawClient) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in _names()])
        response = client.call(request, MetadataResponse, VERSIONS["Metadata"])
        assert isinstance(response, MetadataResponse)
        assert not any(topic.error_code for topic in response.topics)

    async def story(broker: Broker, steps: Steps) -> None:
        with steps.of_loop():
            await call(broker, ask)

    return in_broker(story)


def _deletion() -> Steps:
    def ask(client: RawClient) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in _names()], timeout_ms=60_000)
        response = client.call(request, DeleteTopicsResponse, 6)
        assert isinstance(response, DeleteTopicsResponse)
        assert not any(topic.error_code for topic in response.responses)

    async def story(broker: Broker, steps: Steps) -> None:
        await create_topics(broker, _names(), {})
        with steps.of_loop():
            await call(broker, ask)
            await until(lambda: not list(broker.replicas))

    return in_broker(story)


def _recovery() -> Steps:
    steps = Steps()

    async def story(data_dir: Path) -> None:
        broker = await _started(data_dir, {})
        await create_topics(broker, _names(), {})
        for partition in broker.replicas:
            _fill(partition.log, 1 << 14)
        await broker.stop()
        (data_dir / CLEAN_SHUTDOWN_FILE).unlink()
        with steps.of_loop():
            broker = await _started(data_dir, {})
            await until(lambda: len(list(broker.replicas)) >= COUNT)
        await broker.stop()

    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        asyncio.run(story(Path(name)))
    return steps


def _following() -> Steps:
    """The leader's steps are in it too, as both run on one loop."""
    steps = Steps()

    async def story(data_dir: Path) -> None:
        cluster = LocalCluster(ServerConfig({}), data_dir=data_dir, brokers=2, port=0, log=QUIET)
        await cluster.start()
        await create_topics(cluster.brokers[0], ["t"], {}, replicas=2)
        await cluster.stop_broker(1)
        leader = cluster.brokers[0].replicas.partition("t", 0)
        await until(lambda: leader.is_leader)
        _fill(leader.log, COPIED_BYTES)
        with steps.of_loop():
            await cluster.start_broker(1)
            await until(
                lambda: cluster.brokers[1].replicas.partition("t", 0).log.log_end_offset == leader.log.log_end_offset
            )
        await cluster.stop()

    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        asyncio.run(story(Path(name)))
    return steps


def _upkeep() -> Steps:
    """Retention, compaction and expiry of producers look at all logs, and find nothing to do."""
    interval_ms = 500

    async def story(broker: Broker, steps: Steps) -> None:
        await create_topics(broker, ["t"], {"cleanup.policy": "compact,delete"}, partitions=MAINTAINED_PARTITIONS)
        await until(lambda: len(list(broker.replicas)) == MAINTAINED_PARTITIONS)
        for partition in broker.replicas:
            _fill(partition.log, 1 << 10)
        with steps.of_loop():
            await asyncio.sleep(4 * interval_ms / 1000)

    settings = {
        "log.retention.check.interval.ms": str(interval_ms),
        "producer.id.expiration.check.interval.ms": str(interval_ms),
        "log.cleaner.backoff.ms": str(interval_ms),
        "replica.lag.time.max.ms": str(2 * interval_ms),
    }
    return in_broker(story, settings)


# Stories of groups.


def _rebalance() -> Steps:
    async def story(broker: Broker, steps: Steps) -> None:
        await call(broker, lambda client: find_coordinator(client, GROUP))
        port = int(broker.bootstrap.rsplit(":", 1)[1])
        with steps.of_loop():
            await asyncio.to_thread(lambda: Fleet(port).join_all())

    return in_broker(story, {"group.initial.rebalance.delay.ms": "0"})


def _offsets() -> Steps:
    def ask(client: RawClient, partitions: int) -> None:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(partitions)))
        response = client.call(OffsetFetchRequest(group_id="g", topics=[topic]), OffsetFetchResponse, 5)
        assert isinstance(response, OffsetFetchResponse)
        assert len(response.topics[0].partitions) == partitions

    async def story(broker: Broker, steps: Steps) -> None:
        await call(broker, lambda client: find_coordinator(client, "g"))
        # The first request compiles the codecs.
        await call(broker, lambda client: ask(client, 1_000))
        with steps.of_loop():
            await call(broker, lambda client: ask(client, ASKED_PARTITIONS))

    return in_broker(story)


STORIES: dict[str, Callable[[], Steps]] = {
    f"the tail of a nearly full 1 GiB segment of {BATCH_BYTES}-byte batches is truncated": _truncation,
    "64 MiB are compacted": _compaction,
    f"a log with {PRODUCERS:,} producers rolls and is deleted": _roll_with_producers,
    f"{PRODUCERS:,} producers expire": _producer_expiry,
    "a follower copies 64 MiB": _following,
    f"{MAINTAINED_PARTITIONS:,} partitions are looked at by retention, compaction and expiry": _upkeep,
    f"{COUNT:,} partitions are deleted": _deletion,
    f"{COUNT:,} topics are created by one CreateTopics request": _creation,
    f"{COUNT:,} topics are created by one Metadata request": _auto_creation,
    f"a data directory of {COUNT:,} partitions is recovered": _recovery,
    f"{MEMBERS:,} members join one group": _rebalance,
    f"one OffsetFetch request asks about {ASKED_PARTITIONS:,} partitions": _offsets,
}


# Brokers.


def in_broker(story: Callable[[Broker, Steps], Awaitable[None]], settings: dict[str, str] | None = None) -> Steps:
    steps = Steps()

    async def run(data_dir: Path) -> None:
        broker = await _started(data_dir, settings or {})
        try:
            await story(broker, steps)
            # The step in which the story ends is not the one in which the stop begins.
            await asyncio.sleep(0)
        finally:
            await broker.stop()

    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        asyncio.run(run(Path(name)))
    return steps


async def _started(data_dir: Path, settings: dict[str, str]) -> Broker:
    broker = Broker(ServerConfig(settings), data_dir=data_dir, port=0, log=QUIET)
    await broker.start()
    return broker


async def call(broker: Broker, ask: Callable[[RawClient], None]) -> None:
    """By a client in a thread of its own."""

    def work() -> None:
        client = RawClient(int(broker.bootstrap.rsplit(":", 1)[1]))
        ask(client)
        client.close()

    await asyncio.to_thread(work)


async def create_topics(
    broker: Broker, names: list[str], configs: dict[str, str], replicas: int = 1, partitions: int = 1
) -> None:
    def ask(client: RawClient) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name in names
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        response = client.call(request, CreateTopicsResponse, VERSIONS["CreateTopics"])
        assert isinstance(response, CreateTopicsResponse)
        assert not any(topic.error_code for topic in response.topics)

    await call(broker, ask)
    await until(lambda: all(broker.replicas.find(name, 0) is not None for name in names))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - the parts of a broker notify one another, not their observers
            await asyncio.sleep(0.01)


def _names() -> list[str]:
    return [f"thousand-{number}" for number in range(COUNT)]
