"""Reads of followers from a leader's log. They are milliseconds apart, and ask for the same.

Reading, and checking what was read, costs a leader as much as sending it. So the last read of each log is kept, of all
logs together no more than `KEPT_BYTES_MAX`; and what was appended last need not be read at all (`RecentAppends`).
Records do not change once they are in a log; whatever takes some away changes its count of `truncations`.
"""

from typing import NamedTuple

from ottla.replication.partition import Partition
from ottla.replication.recent_appends import RecentAppends
from ottla.replication.replica_reads import FollowerFetch, FollowerRead
from ottla.storage.log import Log

# One answer of the default `replica.fetch.max.bytes`, and the beginning of the batch behind it.
KEPT_BYTES_MAX = (4 << 20) + (64 << 10)


class _KeptRead(NamedTuple):
    truncations: int
    offset: int
    max_bytes: int
    upper_bound: int
    end_offset: int
    records: memoryview

    def answers(self, truncations: int, offset: int, max_bytes: int, upper_bound: int) -> bool:
        """Whether the same read would find the same. One that ended before its bound was ended by its size."""
        if offset != self.offset or truncations != self.truncations:
            return False
        if self.end_offset < self.upper_bound:
            return max_bytes == self.max_bytes
        return upper_bound == self.upper_bound and max_bytes >= len(self.records)


def read_for_follower(
    partition: Partition,
    fetch: FollowerFetch,
    max_bytes: int,
    *,
    at_least_one_batch: bool,
    shared: "SharedReads",
) -> FollowerRead:
    """What a follower gets, up to the end of the log. Changes nothing: `Partition.note_follower_fetch` does. Another
    follower that asks for the same gets the same.

    Raises KafkaError, and `WouldBlock` when the records must come from the disk."""
    partition.check_follower(fetch.replica_id, fetch.current_leader_epoch)
    log = partition.log
    end_offset = log.log_end_offset
    read = partition.reads.without_records(fetch, has_room=max_bytes > 0 or at_least_one_batch)
    if read is not None:
        return read
    records = shared.read(
        log,
        fetch.fetch_offset,
        max_bytes,
        upper_bound=end_offset,
        min_one_batch=at_least_one_batch,
        keeps=len(partition.replicas) > 2,
    )
    return FollowerRead(records, None, end_offset)


class SharedReads:
    def __init__(self) -> None:
        self.recent = RecentAppends()
        # The oldest first.
        self._kept: dict[Log, _KeptRead] = {}
        self._bytes = 0

    def read(
        self,
        log: Log,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int,
        min_one_batch: bool = True,
        keeps: bool = True,
    ) -> memoryview | list[memoryview]:
        """As `Log.read`, and raises what that does. `keeps`: others will ask for the same."""
        recent = self.recent.read(log, offset, max_bytes)
        if recent:
            return recent
        if not min_one_batch:
            # How much room the partitions before this one leave differs from follower to follower.
            return log.read(offset, max_bytes, upper_bound=upper_bound, min_one_batch=False).records
        kept = self._kept.get(log)
        if kept is not None and kept.answers(log.truncations, offset, max_bytes, upper_bound):
            return kept.records
        result = log.read(offset, max_bytes, upper_bound=upper_bound, min_one_batch=True)
        if keeps:
            self._keep(
                log, _KeptRead(log.truncations, offset, max_bytes, upper_bound, result.end_offset, result.records)
            )
        return result.records

    def forget(self, log: Log) -> None:
        """The next reads come from the log itself, or it is deleted."""
        self._forget(log)
        self.recent.forget(log)

    def _keep(self, log: Log, read: _KeptRead) -> None:
        self._forget(log)
        if len(read.records) > KEPT_BYTES_MAX:
            return
        self._kept[log] = read
        self._bytes += len(read.records)
        while self._bytes > KEPT_BYTES_MAX:
            self._forget(next(iter(self._kept)))

    def _forget(self, log: Log) -> None:
        kept = self._kept.pop(log, None)
        if kept is not None:
            self._bytes -= len(kept.records)
