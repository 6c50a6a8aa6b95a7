"""The replicas of all partitions, compared batch by batch (I-2, I-3, I-4, I-7, I-9, I-10).

Of every batch a hash is kept that covers it and all before it. Two logs are the same up to an offset if and only if
their hashes there are, so nothing is read twice, and nothing is compared but numbers. A log that does not start at 0
goes on from the committed hash at its start. Logs that are compacted are compared record by record, in
`compacted.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

from ottla.protocol.errors import CorruptMessage
from ottla.protocol.records.batch import NO_PRODUCER_ID, BatchHeader, iterate_batches
from tests.simulation.cluster.stable_offsets import StableOffset
from tests.simulation.judge import Judge

Partition = tuple[bytes, int]
"""Topic id and index."""


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    leader_epoch: int
    prefix: int
    """Hash of the log up to the end of this batch."""
    sequence: tuple[int, int, int] | None
    """Producer id, epoch and first sequence of an idempotent producer."""


@dataclass
class Committed:
    """What has been below the high watermark of a leader, ever; and every batch that any replica has had."""

    name: str
    end_offset: int = 0
    unread_end_offset: int = 0
    """The same of leaders whose disk had rotted: what they had below it could not be read there."""
    leader_epoch: int = -1
    """Of the leader that committed last."""
    committed_in: dict[int, int] = field(default_factory=dict)
    """By end offset of a batch, the epoch of the leader that committed it first."""
    start_offset: int = 0
    """The highest log start offset that any replica has had."""
    start_offsets: dict[str, int] = field(default_factory=dict)
    """The highest that the replica of each broker has had, in all its lives."""
    restarted_at: int = 0
    """The highest log start offset at which a follower began its log again, as Kafka's do where they have less: it
    knows of no sequence of producers before."""
    prefixes: dict[int, int] = field(default_factory=lambda: {0: 0})
    """By end offset of a batch."""
    sequences: set[tuple[int, int, int]] = field(default_factory=set)
    """Of batches of idempotent producers; not where the log is compacted, or any replica may lead."""
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    """Hash by base offset and leader epoch; of a single record where the log is compacted."""
    latest: dict[bytes, "LatestRecord"] = field(default_factory=dict)
    """By key, where the log is compacted."""
    expired: "set[tuple[bytes, LatestRecord]]" = field(default_factory=set)
    """Tombstones by key that a replica has removed, with all that stood before."""
    came_back: set[bytes] = field(default_factory=set)
    """Keys of tombstones that expired before some replica had them."""
    end_record_epoch: int = -1
    """Of the last record, where the log is compacted and has transactions."""
    markers_of: "dict[str, set[Marker]]" = field(default_factory=dict)
    """Markers of transactions that the replica of each broker has had, in all its lives, as far as they were not cut;
    where the log is compacted."""
    expired_markers: "set[Marker]" = field(default_factory=set)
    """Those that a replica has removed."""
    undecided: set[int] = field(default_factory=set)
    """Offsets of records of transactions whose marker expired before some replica had it."""
    prefixes_before: dict[tuple[int, int], int] = field(default_factory=dict)
    """Where any replica may lead: the hash of the log before a batch, by base offset and leader epoch."""
    last_prefixes: dict[int, int] = field(default_factory=dict)
    """Where any replica may lead: of the last replica that got so far, by end offset."""
    control_batch_came: Callable[[BatchHeader, memoryview], None] = lambda _header, _content: None
    """To any replica."""


class LatestRecord(NamedTuple):
    offset: int
    leader_epoch: int
    is_tombstone: bool


class Marker(NamedTuple):
    offset: int
    leader_epoch: int
    producer_id: int


class TrackedLog:
    """One replica in one life of its broker, as it was last looked at."""

    def __init__(
        self, judge: Judge, committed: Committed, log: Any, owner: str, is_rotten: Callable[[], bool] = lambda: False
    ) -> None:
        self._is_rotten = is_rotten
        self._judge = judge
        self._committed = committed
        self.log = log
        self._owner = owner
        self._batches: list[Batch] = []
        self._prefixes: dict[int, int] = {0: 0}
        self._sequences: dict[tuple[int, int, int], int] = {}
        """With the end offset of their batch."""
        self._truncations = log.truncations
        self.transactions = StableOffset(log.log_end_offset, log.log_start_offset)
        self._epochs: Any = None
        self._starts_at = 0
        self._spared_in: int | None = None
        if log.log_start_offset > committed.start_offset:
            self.violated("I-5", f"begins at {log.log_start_offset}, only {committed.start_offset} were deleted")
        self._begin()

    def _begin(self) -> None:
        """With the first batch of the log, which may lie before the log start offset."""
        ends = (end for end in self._committed.prefixes if end <= self.log.log_start_offset)
        self._starts_at = max(ends, default=0)
        self._prefixes = {self._starts_at: self._committed.prefixes[self._starts_at]}

    def look(self, spared_in: int | None = None) -> None:
        """After any change of the log. `spared_in` is the leader epoch that a replica goes by which is not among those
        that are to have what was committed."""
        log, self._spared_in = self.log, spared_in
        self._note_start(log.log_start_offset)
        if self.end_offset < log.log_start_offset or self._begins_again_at_its_end():
            self._committed.restarted_at = max(self._committed.restarted_at, log.log_start_offset)
        if log.truncations != self._truncations or self.end_offset > log.log_end_offset:
            self._truncations = log.truncations
            self._forget_what_was_cut()
        if self.end_offset <= log.log_start_offset:
            self._forget_what_was_deleted()
        # Another list whenever they change.
        if log.epochs.entries is not self._epochs:
            self._epochs = log.epochs.entries
            self._look_at_epochs()
        if self.end_offset < log.log_end_offset:
            self._read_on()

    def _begins_again_at_its_end(self) -> bool:
        """Where its leader's log begins too, which cannot say whether they were the same up to there (§14.5.4)."""
        log = self.log
        is_empty = self.end_offset == log.log_start_offset == log.log_end_offset and not log.epochs.entries
        return is_empty and log.truncations != self._truncations

    def note_deletions(self) -> None:
        """When its broker dies, perhaps in the middle of a deletion that no look has seen."""
        start_offset = self.log.log_start_offset
        if start_offset <= self._committed.end_offset:
            self._note_start(start_offset)

    def _note_start(self, start_offset: int) -> None:
        committed = self._committed
        committed.start_offset = max(committed.start_offset, start_offset)
        committed.start_offsets[self._owner] = max(committed.start_offsets.get(self._owner, 0), start_offset)

    @property
    def end_offset(self) -> int:
        return self._batches[-1].end_offset if self._batches else self._starts_at

    def prefix_at(self, offset: int) -> int | None:
        """The hash of everything below `offset`; None where no batch ends there."""
        return self._prefixes.get(offset)

    def has_the_same(self, other: "TrackedLog") -> bool:
        """Whether both logs are known to be equal, as far as they have been looked at, and that is to their ends."""
        end = self.log.log_end_offset
        prefix = self.prefix_at(end)
        return prefix is not None and end == other.log.log_end_offset and prefix == other.prefix_at(end)

    def has_committed(self) -> bool:
        committed = self._committed
        return self.prefix_at(committed.end_offset) == committed.prefixes[committed.end_offset]

    def lacks_committed(self) -> bool:
        """Where the disk has rotted, what is missing may just be unreadable."""
        has_all = self.has_committed() and self.end_offset >= self._committed.unread_end_offset
        return not has_all and not self._is_rotten()

    def check_leads_with_committed(self, leader_epoch: int) -> None:
        """At the beginning of a term. A leader that learns of its term only after a later one has begun commits
        nothing: it need not have what the later one has committed."""
        if leader_epoch >= self._committed.leader_epoch and self.lacks_committed():
            self.violated("I-4", f"leads without what was committed up to {self._committed.end_offset}")

    def commit(self, high_watermark: int, leader_epoch: int) -> bool:
        """This replica's leader says that everything below is replicated; returns whether that is news."""
        committed = self._committed
        if high_watermark <= committed.end_offset:
            return False
        if not self.has_committed():
            self._cannot_commit(high_watermark, f"what was committed up to {committed.end_offset}")
            return False
        if self.prefix_at(high_watermark) is None:
            self.violated("I-6", f"the high watermark {high_watermark} is not the end of a batch")
            return False
        for batch in reversed(self._batches):
            if batch.end_offset <= committed.end_offset:
                break
            if batch.end_offset <= high_watermark:
                committed.prefixes[batch.end_offset] = batch.prefix
                committed.committed_in[batch.end_offset] = leader_epoch
                if batch.sequence is not None:
                    committed.sequences.add(batch.sequence)
        committed.end_offset, committed.leader_epoch = high_watermark, leader_epoch
        return True

    def _cannot_commit(self, high_watermark: int, missing: str) -> None:
        """What is missing may just be unreadable here: then the other replicas in sync have to have it."""
        committed = self._committed
        if self._is_rotten():
            committed.unread_end_offset = max(committed.unread_end_offset, high_watermark)
        else:
            self.violated("I-4", f"leads without {missing}")

    def violated(self, invariant: str, how: str) -> None:
        self._judge.violated(invariant, f"{self._committed.name} on {self._owner}: {how}")

    def _forget_what_was_cut(self) -> None:
        while self._batches and not self._is_there(self._batches[-1]):
            batch = self._batches.pop()
            del self._prefixes[batch.end_offset]
            if batch.sequence is not None:
                self._sequences.pop(batch.sequence, None)
            was_committed = self._is_committed(batch)
            # What a leader has deleted may go everywhere, also where a restart at its log start stops half-way.
            is_kept = self._committed.start_offset < batch.end_offset and not self._was_committed_later(batch)
            if was_committed and is_kept and not self._is_rotten():
                self.violated("I-5", f"cut the committed batch at {batch.base_offset}")
        self.transactions.cut(self.end_offset)
        if not self._batches:
            self._begin()

    def _was_committed_later(self, batch: Batch) -> bool:
        """By a later leader than the one that a spared replica follows, which has been deposed and does not know it: it
        need not have the batch, and its follower cuts it, and copies it again."""
        return self._spared_in is not None and self._spared_in < self._committed.committed_in.get(batch.end_offset, -1)

    def _forget_what_was_deleted(self) -> None:
        """A follower that was cut off may have other records below the log start of its leader, which does not know any
        more where they diverged (§14.5.3). They are deleted with the fetch that brings what follows, and nothing that
        follows builds on them."""
        for batch in self._batches:
            if batch.sequence is not None and not self._is_committed(batch):
                self._sequences.pop(batch.sequence, None)
        self._batches.clear()
        self._begin()

    def _is_there(self, batch: Batch) -> bool:
        log = self.log
        return batch.end_offset <= log.log_end_offset and self._agrees_with_cache(batch.base_offset, batch.leader_epoch)

    def _agrees_with_cache(self, base_offset: int, epoch: int) -> bool:
        """The cache begins with the log start offset, which may lie within a batch. A restart may forget how far this
        replica's records were deleted, but not that the cache began there."""
        entries = self.log.epochs.entries
        if entries and base_offset < entries[0].start_offset <= self._committed.start_offsets[self._owner]:
            return epoch <= entries[0].epoch
        return bool(self.log.epochs.epoch_at(base_offset) == epoch)

    def _look_at_epochs(self) -> None:
        for one, other in pairwise(self._epochs):
            if one.epoch >= other.epoch or one.start_offset >= other.start_offset:
                self.violated("I-7", f"{one} before {other}")

    def _read_on(self) -> None:
        try:
            while self.end_offset < self.log.log_end_offset:
                bound = self.log.log_end_offset
                # The batch at the log start may begin before it.
                position = max(self.end_offset, self.log.log_start_offset)
                with self.log.files.nothing_fails():
                    content = self.log.read(position, 1 << 20, upper_bound=bound, min_one_batch=True, wait=True)
                if not content.records:
                    return
                for position, header in iterate_batches(content.records):
                    self._add(header, content.records[position : position + header.size_bytes])
        except CorruptMessage as error:
            if not self._is_rotten():
                self.violated("I-2", f"cannot be read: {error}")

    def _add(self, header: BatchHeader, content: memoryview) -> None:
        if header.base_offset != self.end_offset:
            self.violated("I-9", f"offset {header.base_offset} where {self.end_offset} was next")
        epoch = header.partition_leader_epoch
        if not self._agrees_with_cache(header.base_offset, epoch):
            self.violated("I-7", f"batch {header.base_offset} has epoch {epoch}, the cache says {self._epochs}")
        if header.is_control:
            self._committed.control_batch_came(header, content)
        wrong = self.transactions.add(header, content)
        if wrong is not None:
            self.violated("I-8", f"at {header.base_offset}: {wrong}")
        prefix = crc32(content, self._prefix_before(header, content))
        batch = Batch(header.base_offset, header.next_offset, epoch, prefix, _sequence_of(header))
        if self._committed.known.setdefault((batch.base_offset, epoch), batch.prefix) != batch.prefix:
            self.violated("I-2", f"another log up to the batch of epoch {epoch} at {batch.base_offset} than elsewhere")
        if batch.sequence is not None:
            is_again = self._sequences.get(batch.sequence, 0) > self._committed.restarted_at
            if is_again and not self._was_replaced(batch.sequence):
                self.violated("I-10", f"{batch.sequence} again at {batch.base_offset}")
            self._sequences[batch.sequence] = batch.end_offset
        self._batches.append(batch)
        self._prefixes[batch.end_offset] = batch.prefix

    def _was_replaced(self, sequence: tuple[int, int, int]) -> bool:
        """Whether the earlier one was never committed, and is still there because its leader had deleted so far (see
        `_forget_what_was_deleted`)."""
        deleted_to = self._committed.start_offset
        earlier = [batch for batch in self._batches if batch.sequence == sequence]
        return bool(earlier) and all(
            batch.end_offset <= deleted_to and not self._is_committed(batch) for batch in earlier
        )

    def _is_committed(self, batch: Batch) -> bool:
        """With all that stands before it; also where it has been deleted since."""
        return self._committed.prefixes.get(batch.end_offset) == batch.prefix

    def _prefix_before(self, header: BatchHeader, content: memoryview) -> int:
        """A restart may forget how far records were deleted: then what was deleted is there again, and may be what a
        follower had that was cut off, unlike what others had there."""
        committed, base_offset = self._committed, header.base_offset
        if base_offset <= committed.start_offset and base_offset in committed.prefixes:
            elsewhere = committed.prefixes[base_offset]
            if committed.known.get((base_offset, header.partition_leader_epoch)) == crc32(content, elsewhere):
                return elsewhere
        return self._prefixes[self.end_offset]


def _sequence_of(header: BatchHeader) -> tuple[int, int, int] | None:
    # Markers have none, nor have offsets that a transaction commits.
    if header.producer_id == NO_PRODUCER_ID or header.base_sequence < 0:
        return None
    return header.producer_id, header.producer_epoch, header.base_sequence
