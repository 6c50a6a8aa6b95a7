"""What the log of a replica says to those who read or copy it: whether it has an offset, and where two logs part."""

from typing import NamedTuple

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.log import Log

NO_RECORDS = memoryview(b"")


class FollowerFetch(NamedTuple):
    """What a follower's fetch request says of one partition."""

    replica_id: int
    broker_epoch: int
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FollowerRead(NamedTuple):
    records: memoryview | list[memoryview]
    diverging: tuple[int, int] | None
    """(epoch, end offset) where the follower's log parts from this one; then there are no records."""
    leader_end_offset: int
    """As it was before the records were read."""

    @property
    def size_bytes(self) -> int:
        records = self.records
        return sum(map(len, records)) if type(records) is list else len(records)


class ReplicaReads:
    """Looks at offsets and leader epochs alone; the records are read by the shell."""

    __slots__ = ("_index", "_log", "_topic")

    def __init__(self, topic: str, index: int, log: Log) -> None:
        self._topic = topic
        self._index = index
        self._log = log

    def check_readable(self, offset: int) -> None:
        if not self._log.log_start_offset <= offset <= self._log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self._topic}-{self._index}, which has {self._log.log_start_offset}"
                f" to {self._log.log_end_offset}"
            )

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Where the log of a reader parts from this one, if it believes its last epoch to reach further (§14.5.1)."""
        log = self._log
        if last_fetched_epoch < 0 or (
            # Of its own latest epoch the log has everything: by far the most fetches need no more than this.
            last_fetched_epoch == log.epochs.latest_epoch and log.log_start_offset <= fetch_offset <= log.log_end_offset
        ):
            return None
        epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
        if end_offset < 0:
            raise OffsetOutOfRange(f"leader epoch {last_fetched_epoch} is not known here")
        if fetch_offset < log.log_start_offset:
            raise OffsetOutOfRange(f"offset {fetch_offset} is below the log start {log.log_start_offset}")
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < fetch_offset else None

    def without_records(self, fetch: FollowerFetch, *, has_room: bool) -> FollowerRead | None:
        """What a follower gets that diverges, has everything, or finds no room in the response; None: records.

        Raises OffsetOutOfRange."""
        end_offset = self._log.log_end_offset
        diverging = self.diverging_epoch(fetch.last_fetched_epoch, fetch.fetch_offset)
        if diverging is not None:
            return FollowerRead(NO_RECORDS, diverging, end_offset)
        if fetch.fetch_offset == end_offset:
            return FollowerRead(NO_RECORDS, None, end_offset)
        self.check_readable(fetch.fetch_offset)
        return None if has_room else FollowerRead(NO_RECORDS, None, end_offset)
