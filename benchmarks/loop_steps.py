"""The longest step of the event loop while a log is cut, compacted or deleted."""

import asyncio
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.figure import NO_BASELINE, Figure
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.metadata.topic_plans import NewTopic
from ottla.cluster.topics import TopicSpec
from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.protocol.records.record import Record, build_batch
from ottla.storage import checkpoints
from ottla.storage.files import OsFileSystem
from ottla.storage.leader_epoch_cache import build_epochs
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.recovery import LogHistory, open_log

ROUNDS = 5
AT_MOST_MS = 20
NOW_MS = 1_700_000_000_000
BATCH_BYTES = 100
TAIL_BYTES = 1 << 20
INDEX_INTERVAL_BYTES = 4100
COMPACTED_BYTES = 64 << 20
COMPACTED_KEYS = 50_000
PARTITIONS = 1_000


def figures() -> list[Figure]:
    truncation = [(_longest_step_of_truncation(), 1.0) for _ in range(ROUNDS)]
    compaction = [(asyncio.run(_longest_step_of_compaction()), 1.0) for _ in range(ROUNDS)]
    deletion = [(asyncio.run(_longest_step_of_deletion()), 1.0) for _ in range(ROUNDS)]
    cut = "a follower truncates the tail of a nearly full 1 GiB segment of 100-byte batches"
    named = {
        f"longest loop step while {cut}": truncation,
        "longest loop step while 64 MiB are compacted": compaction,
        f"longest loop step while {PARTITIONS:,} partitions are deleted": deletion,
    }
    return [Figure(name, NO_BASELINE, "ms", pairs, at_most=AT_MOST_MS) for name, pairs in named.items()]


# Truncation: what the loop does of it, with an idempotent producer in what is cut.


def _longest_step_of_truncation() -> float:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        log = _log_with_sparse_segment(Path(name) / "t-0", LogConfig().segment_bytes - (1 << 20))
        steps = [_milliseconds(lambda: log.truncate_to(log.log_end_offset - 100))]
        steps.append(_milliseconds(log.begin_restore))
        log.release()
        return max(steps)


def _milliseconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1000


def _log_with_sparse_segment(directory: Path, size: int) -> Log:
    """Only the end of the segment is written; no reader may look before it, where only zeros are."""
    directory.mkdir()
    producer = {"producer_id": 7, "producer_epoch": 0}
    padding = BATCH_BYTES - len(
        build_batch([Record(timestamp=NOW_MS, key=None, value=b"")], **producer, base_sequence=0)
    )
    batch = build_batch([Record(timestamp=NOW_MS, key=None, value=bytes(padding))], **producer, base_sequence=0)
    assert len(batch) == BATCH_BYTES
    count = size // BATCH_BYTES
    first_written = count - TAIL_BYTES // BATCH_BYTES
    with (directory / "00000000000000000000.log").open("wb") as file:
        file.truncate(first_written * BATCH_BYTES)
        file.seek(first_written * BATCH_BYTES)
        for offset in range(first_written, count):
            assign_offset_and_epoch(batch, 0, offset, 0)
            file.write(batch)
    every = INDEX_INTERVAL_BYTES // BATCH_BYTES
    entries = range(every, count, every)
    (directory / "00000000000000000000.index").write_bytes(
        b"".join(struct.pack(">ii", n, n * BATCH_BYTES) for n in entries)
    )
    (directory / "00000000000000000000.timeindex").write_bytes(
        b"".join(struct.pack(">qi", NOW_MS - count + n, n) for n in entries)
    )
    (directory / f"{count:020}.snapshot").write_bytes(ProducerStateManager().snapshot_bytes())
    (directory / checkpoints.LEADER_EPOCHS).write_bytes(build_epochs([(0, 0)]))
    return open_log(
        OsFileSystem(),
        directory,
        topic="t",
        partition=0,
        config=LogConfig(),
        history=LogHistory(was_closed_cleanly=True),
        now_wall_ms=NOW_MS,
        notices=lambda _: None,
    )


# Compaction and deletion: in a broker whose loop looks at the clock all the time.


class _Steps:
    """The longest time between two turns of the running loop."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.perf_counter()
        self._is_over = False
        self._turn()

    def _turn(self) -> None:
        now = time.perf_counter()
        self.longest_ms = max(self.longest_ms, (now - self._last) * 1000)
        self._last = now
        if not self._is_over:
            self._loop.call_soon(self._turn)

    def stop(self) -> float:
        self._is_over = True
        return self.longest_ms


async def _measured(
    settings: dict[str, str],
    spec: TopicSpec,
    configs: dict[str, str | None],
    story: Callable[[Broker], Awaitable[float]],
) -> float:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        broker = Broker(ServerConfig(settings), data_dir=Path(name), port=0)
        await broker.start()
        try:
            await broker.topics.create([NewTopic(spec, configs)])
            return await story(broker)
        finally:
            await broker.stop()


async def _longest_step_of_compaction() -> float:
    async def story(broker: Broker) -> float:
        log = broker.replicas.partition("t", 0).log
        value = bytes(1000)
        for first in range(0, COMPACTED_BYTES // len(value), 100):
            records = [
                Record(timestamp=NOW_MS, key=b"%d" % (n % COMPACTED_KEYS), value=value)
                for n in range(first, first + 100)
            ]
            log.append_as_leader(memoryview(build_batch(records)), leader_epoch=0, now_wall_ms=NOW_MS)
            log.write_pending(now_wall_ms=NOW_MS)
        broker.replicas.partition("t", 0).high_watermark = log.log_end_offset
        steps = _Steps()
        while not log.cleaned_offset:  # noqa: ASYNC110 - only the log shows it.
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        return steps.stop()

    configs: dict[str, str | None] = {
        "cleanup.policy": "compact",
        "segment.bytes": str(COMPACTED_BYTES // 4),
        "message.timestamp.type": "CreateTime",
    }
    return await _measured({"log.cleaner.backoff.ms": "1000"}, TopicSpec("t", 1), configs, story)


async def _longest_step_of_deletion() -> float:
    async def story(broker: Broker) -> float:
        steps = _Steps()
        await broker.topics.delete([broker.image.topic("t")])
        while list(broker.replicas):  # noqa: ASYNC110 - only the replicas show it.
            await asyncio.sleep(0.01)
        return steps.stop()

    return await _measured({}, TopicSpec("t", PARTITIONS), {}, story)
