"""Short words for tests of the log."""

import itertools
from pathlib import Path

from ottla.protocol.records.batch import parse_batch_header
from ottla.protocol.records.record import Record, build_batch, iterate_records
from ottla.storage.compaction import CompactionResult, begin_swap
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import LogDirectory
from ottla.storage.retention import Expired
from ottla.storage.segment_swap import SwapStep
from tests.fakes.disk import FakeDisk

ROOT = Path("/data")
NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


def batch(*values: str | None, key: str | None = None, timestamp: int = NOW, **fields: int) -> memoryview:
    """One batch; a value None is a tombstone."""
    records = [
        Record(timestamp=timestamp, key=None if key is None else key.encode(), value=None if v is None else v.encode())
        for v in values
    ]
    return memoryview(build_batch(records, **fields))


def keyed(*pairs: tuple[str, str | None], timestamp: int = NOW, **fields: int) -> memoryview:
    records = [Record(timestamp=timestamp, key=k.encode(), value=None if v is None else v.encode()) for k, v in pairs]
    return memoryview(build_batch(records, **fields))


def open_directory(disk: FakeDisk, config: LogConfig | None = None, **overrides: object) -> LogDirectory:
    ids = (f"id{n:020d}" for n in itertools.count())
    arguments: dict[str, object] = {
        "node_id": 1,
        "cluster_id": None,
        "new_id": lambda: next(ids),
        "config_of": lambda _: config or LogConfig(),
        "now_wall_ms": NOW,
        "files": disk,
    } | overrides
    return LogDirectory.open(ROOT, **arguments)


def new_log(disk: FakeDisk, config: LogConfig | None = None, topic: str = "t") -> Log:
    config = config or LogConfig()
    return open_directory(disk, config).create_log(topic, 0, TOPIC_ID, config, now_wall_ms=NOW)


def reopened(disk: FakeDisk, config: LogConfig | None = None, topic: str = "t") -> Log:
    """The log as a process finds it that starts after this one was killed."""
    disk.locked.clear()
    return open_directory(disk, config).logs[topic, 0]


def append(log: Log, *batches: memoryview, leader_epoch: int = 0, now: int = NOW) -> None:
    for one in batches:
        log.append_as_leader(one, leader_epoch=leader_epoch, now_wall_ms=now)
    log.write_pending(now_wall_ms=now)


def read_all(log: Log, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all records from `offset` on."""
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start_offset if offset is None else offset
    while True:
        result = log.read(at, max_bytes, upper_bound=log.log_end_offset, wait=True)
        if not result.records:
            return found
        found += [(r.offset, r.value) for r in records_in(result.records) if r.offset >= at]
        at = result.end_offset


def keys_and_values(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    found: list[tuple[int, bytes | None, bytes | None]] = []
    at = log.log_start_offset
    while (result := log.read(at, 1 << 20, upper_bound=log.log_end_offset, wait=True)).records:
        found += [(r.offset, r.key, r.value) for r in records_in(result.records)]
        at = result.end_offset
    return found


def records_in(view: memoryview) -> list[Record]:
    records: list[Record] = []
    position = 0
    while position < len(view):
        header = parse_batch_header(view, position)
        records += iterate_records(view[position : position + header.size_bytes])
        position += header.size_bytes
    assert position == len(view), "an answer ends with a whole batch"
    return records


def check_indexes(log: Log) -> None:
    """What Kafka's dump-log checks: entries name batches that are there, in order."""
    for segment in log.segments:
        by_position = {b.position: b.header for b in segment.batches_from(0)}
        ends = {header.last_offset: header for header in by_position.values()}
        for n in range(len(segment.offset_index)):
            relative, position = segment.offset_index.entry(n)
            assert by_position[position].last_offset == segment.base_offset + relative
        for n in range(len(segment.time_index)):
            timestamp, relative = segment.time_index.entry(n)
            assert ends[segment.base_offset + relative].max_timestamp == timestamp
        if by_position:
            assert segment.max_timestamp == max(header.max_timestamp for header in by_position.values())


def apply_compaction(log: Log, result: CompactionResult, *, now_wall_ms: int) -> bool:
    """The whole swap, here and now. False if the log was truncated since the plan. Raises KafkaStorageError."""
    swap = begin_swap(log, result)
    if swap is None:
        return False
    swap.prepare()
    while (step := log.swaps.apply(swap, now_wall_ms)) is not SwapStep.END:
        if step is SwapStep.SYNC:
            swap.sync()
    return not swap.is_abandoned


def apply_retention(log: Log, now_wall_ms: int, high_watermark: int) -> list[Expired]:
    """Both halves, as when the checkpoint of log starts has been written in between."""
    expired = log.expire(now_wall_ms, high_watermark)
    log.delete_expired(log.log_start_offset, now_wall_ms)
    return expired
