"""Leading, as followers see it: what they get from the log, and what their fetches tell of how far they are."""

from typing import NamedTuple

from ottla.protocol.errors import NotLeaderOrFollower, UnknownLeaderEpoch
from ottla.replication.isr import IsrChange
from ottla.replication.leading import Leading
from ottla.replication.progress import Contact
from ottla.replication.reading import Reading
from ottla.replication.shared_reads import SharedReads

NOTHING = memoryview(b"")


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


class FollowerNoted(NamedTuple):
    high_watermark_rose: bool
    isr_change: IsrChange | None
    """To be sent to the controller."""


class ServingFollowers(Leading, Reading):
    """The part of a partition that its followers fetch from."""

    __slots__ = ()

    @property
    def has_followers(self) -> bool:
        """Whether this leader has any to wait for."""
        return self.leadership is not None and bool(self.leadership.followers)

    def is_in_sync(self, replica_id: int) -> bool:
        return self.leadership is not None and replica_id in self.leadership.isr_state.isr

    def follower_left(self, replica_id: int, contact: Contact) -> None:
        """This session of it does without the partition from now on; it may have another one."""
        progress = None if self.leadership is None else self.leadership.followers.get(replica_id)
        if progress is not None and progress.is_seen_by(contact):
            progress.leave_contact()

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Whether broker `replica_id` may fetch as a follower: only from the leader, only with a replica (§15.1.4)."""
        leadership = self.leadership
        if leadership is not None and current_leader_epoch == self.leader_epoch and replica_id in leadership.followers:
            return
        self.check_leader(current_leader_epoch)
        if replica_id not in self.replicas or replica_id == self.local_id:
            what = f"broker {replica_id} has no replica of {self.topic}-{self.index}"
            raise UnknownLeaderEpoch(what) if current_leader_epoch >= 0 else NotLeaderOrFollower(what)

    def has_nothing_for(self, fetch: FollowerFetch) -> bool:
        """Whether the follower is where the log ends, and `read_for_follower` would find neither records nor fault."""
        leadership, log = self.leadership, self.log
        return (
            leadership is not None
            and fetch.fetch_offset == log.log_end_offset
            and fetch.current_leader_epoch == self.leader_epoch
            and fetch.last_fetched_epoch == log.epochs.latest_epoch
            and leadership.knows(fetch.replica_id, fetch.broker_epoch)
        )

    def read_for_follower(
        self, fetch: FollowerFetch, max_bytes: int, *, at_least_one_batch: bool, shared: SharedReads | None = None
    ) -> FollowerRead:
        """What a follower gets, up to the end of the log. Changes nothing: `note_follower_fetch` does. With `shared`,
        another follower that asks for the same gets the same.

        Raises KafkaError, and `WouldBlock` when the records must come from the disk."""
        self.check_follower(fetch.replica_id, fetch.current_leader_epoch)
        end_offset = self.log.log_end_offset
        diverging = self.diverging_epoch(fetch.last_fetched_epoch, fetch.fetch_offset)
        if diverging is not None:
            return FollowerRead(NOTHING, diverging, end_offset)
        if fetch.fetch_offset == end_offset:
            return FollowerRead(NOTHING, None, end_offset)
        self.check_readable(fetch.fetch_offset)
        if max_bytes <= 0 and not at_least_one_batch:
            return FollowerRead(NOTHING, None, end_offset)
        if shared is not None:
            records = shared.read(
                self.log,
                fetch.fetch_offset,
                max_bytes,
                upper_bound=end_offset,
                min_one_batch=at_least_one_batch,
                keeps=len(self.replicas) > 2,
            )
            return FollowerRead(records, None, end_offset)
        result = self.log.read(fetch.fetch_offset, max_bytes, upper_bound=end_offset, min_one_batch=at_least_one_batch)
        return FollowerRead(result.records, None, end_offset)

    def note_follower_fetch(
        self, fetch: FollowerFetch, leader_end_offset: int, now_ms: int, contact: Contact | None = None
    ) -> FollowerNoted:
        """The follower has all records below its fetch offset.

        Call it once for a request, at its first read, and only if that succeeded without divergence (§14.1.4).
        `leader_end_offset` is the log end as it was before that read, `contact` that of the session. Raises what
        `check_follower` does, and NotLeaderOrFollower for a broker epoch that is over."""
        self.check_follower(fetch.replica_id, fetch.current_leader_epoch)
        leadership = self.leadership
        assert leadership is not None, "a leader has a leadership"
        leadership.note_fetch(
            fetch.replica_id,
            fetch.fetch_offset,
            fetch.log_start_offset,
            fetch.broker_epoch,
            leader_end_offset=leader_end_offset,
            now_ms=now_ms,
            contact=contact,
        )
        change = leadership.maybe_expand(fetch.replica_id, self.high_watermark)
        return FollowerNoted(self.maybe_raise_high_watermark(now_ms), change)
