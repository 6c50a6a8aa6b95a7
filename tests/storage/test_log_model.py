"""The log beside a dumb model: a list of batches. Whatever is done in whatever order, both say the same."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import (
    NOW,
    append,
    apply_retention,
    batch,
    check_indexes,
    new_log,
    read_all,
    records_in,
    reopened,
)

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_bytes=3000, retention_ms=-1)
Batch = list[tuple[int, bytes]]


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.disk = FakeDisk()
        self.log = new_log(self.disk, CONFIG)
        self.batches: list[Batch] = []
        self.start = self.end = 0
        self.epoch = 0
        self.clock = 0

    @rule(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5), count=st.integers(1, 4), codec=st.integers(0, 4))
    def append(self, sizes: list[int], count: int, codec: int) -> None:
        new = []
        for _ in range(count):
            self.clock += 1
            values = [f"{self.end + n}".ljust(size, ".") for n, size in enumerate(sizes)]
            new.append(batch(*values, timestamp=NOW + self.clock, codec=codec))
            self.batches.append([(self.end + n, value.encode()) for n, value in enumerate(values)])
            self.end += len(values)
        append(self.log, *new, leader_epoch=self.epoch)

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(fraction=st.floats(0, 1), max_bytes=st.integers(1, 2000), bound=st.floats(0, 1))
    def read(self, fraction: float, max_bytes: int, bound: float) -> None:
        offset = self.start + int(fraction * (self.end - self.start))
        upper_bound = self.start + int(bound * (self.end - self.start))
        result = self.log.read(offset, max_bytes, upper_bound=upper_bound)
        found = [(r.offset, r.value) for r in records_in(result.records)]
        candidates = [b for b in self.batches if b[-1][0] >= offset and b[-1][0] < upper_bound]
        if offset < upper_bound and candidates:
            assert found[: len(candidates[0])] == candidates[0], "the first batch comes whatever its size"
            assert found == [record for b in candidates for record in b][: len(found)]
            assert len(result.records) <= max_bytes or found == candidates[0]
        else:
            assert found == []

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self.start + int(fraction * (self.end - self.start))
        self.log.truncate_to(offset)
        self.batches = [b for b in self.batches if b[-1][0] < offset]
        if offset < self.end:
            self.end = self.batches[-1][-1][0] + 1 if self.batches else self.start
        # A leader whose log was cut begins a new epoch.
        self.epoch += 1

    @rule(fraction=st.floats(0, 1))
    def delete_before(self, fraction: float) -> None:
        self.start += int(fraction * (self.end - self.start))
        self.log.delete_records_before(self.start)
        self._forget_batches()

    @rule()
    def retain(self) -> None:
        apply_retention(self.log, NOW + self.clock, self.end)
        self.start = self.log.log_start_offset
        assert self.log.size_bytes <= 3000 + 700
        self._forget_batches()

    @rule()
    def reopen(self) -> None:
        """As after a kill: the log start is only known to the segment, as it was not checkpointed."""
        self.log = reopened(self.disk, CONFIG)
        self.log.delete_records_before(max(self.start, self.log.log_start_offset))

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end

    @rule(ahead=st.integers(0, 40))
    def look_up(self, ahead: int) -> None:
        found = self.log.offset_for_timestamp(NOW + self.clock - ahead, self.end)
        if found is not None:
            assert self.start <= found.offset < self.end
            assert found.timestamp >= NOW + self.clock - ahead

    @invariant()
    def same_ends(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)

    @invariant()
    def same_records(self) -> None:
        if hasattr(self, "log"):
            expected = [record for b in self.batches for record in b if record[0] >= self.start]
            assert read_all(self.log, max_bytes=500) == expected
            check_indexes(self.log)

    def _forget_batches(self) -> None:
        self.batches = [b for b in self.batches if b[-1][0] >= self.start]


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
