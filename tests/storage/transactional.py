"""Transactions in a log, as tests write them, and a reader of committed records, as clients are (§43.9)."""

from ottla.protocol.records.batch import parse_batch_header
from ottla.protocol.records.control import TransactionMarker, build_marker, marker_of
from ottla.protocol.records.record import Record, build_batch, iterate_records
from ottla.storage.log import Log
from tests.storage.support import NOW

COMMIT, ABORT = True, False


def write(
    log: Log,
    *values: str,
    producer: int,
    epoch: int = 0,
    key: str | None = None,
    leader_epoch: int = 0,
    now: int = NOW,
) -> int:
    """A transactional batch, copied from a leader that has checked it; its base offset."""
    records = [Record(timestamp=now, key=None if key is None else key.encode(), value=v.encode()) for v in values]
    return copy(
        log,
        build_batch(
            records,
            base_offset=log.log_end_offset,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=0,
            leader_epoch=leader_epoch,
            transactional=True,
        ),
    )


def end(log: Log, *, producer: int, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, now: int = NOW) -> int:
    """The marker; its offset."""
    what = TransactionMarker(commit, coordinator_epoch)
    marker = build_marker(what, producer_id=producer, producer_epoch=epoch, timestamp=now, leader_epoch=0)
    marker[0:8] = log.log_end_offset.to_bytes(8, "big")
    return copy(log, marker)


def copy(log: Log, batch: bytearray) -> int:
    offset = log.log_end_offset
    log.append_as_follower(memoryview(batch), now_wall_ms=NOW)
    log.write_pending(now_wall_ms=NOW)
    return offset


def committed(log: Log, start: int, *, high_watermark: int, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """(offset, value) of what a consumer with `read_committed` gets from `start` on."""
    found: list[tuple[int, bytes | None]] = []
    at = start
    while True:
        stable = log.last_stable_offset(high_watermark)
        result = log.read(at, max_bytes, upper_bound=stable, wait=True)
        if not result.records:
            return found
        aborted = {(each.producer_id, each.first_offset) for each in log.aborted_transactions(at, result.end_offset)}
        found += [record for record in visible(result.records, aborted) if record[0] >= at]
        at = result.end_offset


def visible(records: memoryview, aborted: set[tuple[int, int]]) -> list[tuple[int, bytes | None]]:
    waiting = sorted(aborted, key=lambda each: each[1])
    hidden: set[int] = set()
    found: list[tuple[int, bytes | None]] = []
    position = 0
    while position < len(records):
        header = parse_batch_header(records, position)
        batch = records[position : position + header.size_bytes]
        position += header.size_bytes
        while waiting and waiting[0][1] <= header.last_offset:
            hidden.add(waiting.pop(0)[0])
        if header.is_control:
            marker = marker_of(batch)
            if marker is not None and not marker.is_commit:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            found += [(record.offset, record.value) for record in iterate_records(batch)]
    return found
