"""Appends as a leader makes them whose followers will ask for them."""

from ottla.replication.recent_appends import RecentAppends
from ottla.storage.log import Log
from tests.storage.support import NOW

PLENTY = 1 << 23


def append_and_record(recent: RecentAppends, log: Log, *batches: memoryview) -> int:
    """One write of all of them; where the first batch went."""
    begin = log.log_end_offset
    for one in batches:
        log.append_as_leader(one, leader_epoch=0, now_wall_ms=NOW)
    written = log.pending_records
    log.write_pending(now_wall_ms=NOW)
    recent.appended(log, begin, written)
    return begin


def as_sent(records: memoryview | list[memoryview]) -> bytes:
    return b"".join(records) if isinstance(records, list) else bytes(records)


def as_in_log(log: Log, offset: int, max_bytes: int = PLENTY) -> bytes:
    return bytes(log.read(offset, max_bytes, upper_bound=log.log_end_offset).records)
