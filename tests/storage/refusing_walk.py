"""A compacted replica in short random walks on a disk that refuses: what no operation may lose, wherever it stops."""

import errno
import random
from contextlib import suppress

from ottla.broker.replicas.follower_log import perform
from ottla.protocol.errors import KafkaStorageError
from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.replication.follower_effects import AppendRecords, Effect, LogEffect, RestartLog, Truncate
from ottla.replication.partition import Partition
from ottla.storage import compaction
from ottla.storage.log_config import LogConfig
from ottla.storage.segment_reader import WouldBlock
from tests.fakes.disk import LOOKS, NEED_DESCRIPTORS, FakeDisk
from tests.replication.support import take
from tests.storage.support import NOW, TOPIC_ID, apply_compaction, keyed, keys_and_values, new_log, reopened

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=250, index_interval_bytes=80, min_cleanable_dirty_ratio=0.0
)
STEPS = 40


class RefusingWalk:
    """The replica follows: it appends, learns of a high watermark, is cut or restarted, and compacts."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._reads_rng = random.Random(f"{seed}/reads")
        self._disk = FakeDisk()
        self._records: list[tuple[int, bytes | None, bytes | None]] = []
        self._replica = self._made(new_log(self._disk, CONFIG))

    def run(self) -> None:
        steps = [self._append] * 4 + [self._commit] * 2 + [self._compact] * 3 + [self._cut, self._restart_log]
        for n in range(STEPS):
            if self._rng.random() < 0.3:
                self._refuse()
            if self._reads_rng.random() < 0.3:
                self._refuse_reads()
            self._rng.choice(steps)(n)
            self._read()
            self._check()
            if self._replica.log.failure is not None or self._rng.random() < 0.05:
                self._restart_broker()

    def _made(self, log: object) -> Partition:
        replica = Partition("t", 0, TOPIC_ID, log, local_id=1)  # type: ignore[arg-type]
        take(replica, lead=2)
        return replica

    def _refuse(self) -> None:
        """Some of the next operations, of one or two kinds."""
        for kind in self._rng.sample(
            ["rename", "remove", "open", "truncate", "sync_directory"], self._rng.randint(1, 2)
        ):
            for _ in range(self._rng.randint(1, 3)):
                error = OSError(self._rng.choice([errno.EIO, errno.EMFILE]), "the disk refuses")
                self._disk.fail(kind, error, after=self._rng.randint(0, 6))

    def _refuse_reads(self) -> None:
        """Some of them, or what needs a descriptor for it."""
        rng = self._reads_rng
        code = rng.choice([errno.EIO, errno.EMFILE])
        kinds = ["pread", "read_bytes", "list_directory", *LOOKS] if code == errno.EIO else [*NEED_DESCRIPTORS]
        for kind in rng.sample(kinds, rng.randint(1, 3)):
            for _ in range(rng.randint(1, 3)):
                self._disk.fail(kind, OSError(code, "the disk refuses"), after=rng.randint(0, 3))

    def _read(self) -> None:
        """What a reader or the producers' table needs, with the errors that it may end in."""
        log, rng = self._replica.log, self._reads_rng
        self._disk.is_cold = rng.random() < 0.3
        offset = rng.randint(log.log_start_offset, log.log_end_offset)
        with suppress(KafkaStorageError):
            try:
                log.read(offset, 100, upper_bound=log.log_end_offset, min_one_batch=True)
            except WouldBlock as blocked:
                blocked.complete()
        self._disk.is_cold = False

    def _append(self, n: int) -> None:
        log = self._replica.log
        for i in range(self._rng.randint(1, 3)):
            key, value = f"k{self._rng.randrange(4)}", f"{n} {i}"
            records, offset = keyed((key, value)), log.log_end_offset
            assign_offset_and_epoch(records, 0, offset, 5)
            if self._is_done(AppendRecords(self._replica, records, offset, 0, 0)):
                self._records.append((offset, key.encode(), value.encode()))

    def _commit(self, _: int) -> None:
        log = self._replica.log
        self._replica.maybe_update_high_watermark(self._rng.randint(0, log.log_end_offset), log.log_start_offset)

    def _compact(self, _: int) -> None:
        log = self._replica.log
        with suppress(KafkaStorageError):
            plan = compaction.plan_compaction(log, now_wall_ms=NOW, upper_bound=self._replica.high_watermark)
            if plan is not None:
                apply_compaction(log, compaction.compact(plan), now_wall_ms=NOW)

    def _cut(self, _: int) -> None:
        replica = self._replica
        offset = self._rng.randint(replica.high_watermark, replica.log.log_end_offset)
        self._until_done(Truncate(replica, offset, replica.log.log_end_offset, replica.high_watermark))

    def _restart_log(self, _: int) -> None:
        log_end_offset = self._replica.log.log_end_offset
        offset = log_end_offset + self._rng.randint(0, 3)
        self._records.clear()
        self._until_done(RestartLog(self._replica, offset, log_end_offset))

    def _until_done(self, change: LogEffect) -> None:
        """A follower tries again until the disk does it."""
        while self._replica.log.failure is None and not self._is_done(change):
            self._check_high_watermark()
        end = self._replica.log.log_end_offset
        self._records = [record for record in self._records if record[0] < end]

    def _is_done(self, effect: LogEffect) -> bool:
        errors: list[Exception | None] = []

        def report(_: LogEffect, error: Exception | None, __: int) -> list[Effect]:
            errors.append(error)
            return []

        perform([effect], report, now_ms=0, wall_ms=NOW)
        assert errors[0] is None or isinstance(errors[0], KafkaStorageError), errors
        return errors[0] is None

    def _restart_broker(self) -> None:
        """It is killed."""
        self._disk._failures.clear()
        high_watermark = self._replica.high_watermark
        self._replica = self._made(reopened(self._disk, CONFIG))
        self._replica.maybe_update_high_watermark(high_watermark, self._replica.log.log_start_offset)

    def _check(self) -> None:
        self._check_high_watermark()
        self._check_records(self._replica)
        if self._replica.log.failure is None:
            self._check_records(self._made(reopened(FakeDisk.after(self._disk.journal), CONFIG)))

    def _check_high_watermark(self) -> None:
        """I-6"""
        log = self._replica.log
        assert log.log_start_offset <= self._replica.high_watermark <= log.log_end_offset

    def _check_records(self, replica: Partition) -> None:
        """I-5: the latest record of each key is there, and nothing that was not written."""
        failures, self._disk._failures = self._disk._failures, {}
        found = keys_and_values(replica.log)
        self._disk._failures = failures
        assert {key: record for *record, key in ((o, v, k) for o, k, v in found)} == {
            key: [offset, value] for offset, key, value in self._records
        }
        assert set(found) <= set(self._records)
