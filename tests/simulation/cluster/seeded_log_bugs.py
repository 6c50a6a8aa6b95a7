"""Seeded bugs in what logs do besides growing: rolling, compaction, disk errors, deleted records; and in what readers
hear of offsets that a log does not have.

Each is a function that is handed pytest's monkeypatch, as in `seeded_bugs.py`. `docs/seeded-bugs.md` lists them.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from ottla.broker.replicas import fetch_responses, follower_log
from ottla.broker.replicas.current_leader import in_doubt
from ottla.protocol.errors import KafkaStorageError
from ottla.storage import compaction
from ottla.storage.append_queue import AppendQueue
from ottla.storage.files import storage_error
from ottla.storage.log_producers import LogProducers
from ottla.storage.retention import Retention
from ottla.storage.segment import Segment

Patch = Any


def compacts_latest_records_away(patch: Patch) -> None:
    patch.setattr(compaction._Cleaner, "_stays", lambda *_: False)


def compacts_every_third_record_away(patch: Patch) -> None:
    stays = compaction._Cleaner._stays
    patch.setattr(
        compaction._Cleaner,
        "_stays",
        lambda self, record, header: stays(self, record, header) and record.offset % 3 != 0,
    )


def deletes_records_up_to_the_log_end(patch: Patch) -> None:
    delete = Retention.delete_records_before
    patch.setattr(Retention, "delete_records_before", lambda self, offset: delete(self, self._local.log_end_offset))


def refuses_batches_across_the_log_start(patch: Patch) -> None:
    patch.setattr(follower_log, "_start_within_batch", lambda *_: False)


def keeps_a_refused_write_in_memory(patch: Patch) -> None:
    """After a write that the disk refused, the next offset is not taken back. All else is done as it should be."""

    def keep(self: Any, file: Any) -> None:
        try:
            if file is not None:
                file.truncate(self._local.active.size)
        except OSError as error:
            self._local.fail(storage_error("cut a torn write off", self._local.active.path(".log"), error))

    patch.setattr(AppendQueue, "_undo_queue", keep)


def writes_no_more_once_refused(patch: Patch) -> None:
    """Until the broker is started again, and no log says that it has failed."""
    write = AppendQueue.write_pending
    refused: WeakKeyDictionary[AppendQueue, str] = WeakKeyDictionary()

    def remember(self: AppendQueue, now_wall_ms: int) -> None:
        if self in refused and self.batches:
            self._lose_queue()
            raise KafkaStorageError(refused[self])
        try:
            write(self, now_wall_ms)
        except KafkaStorageError as error:
            refused[self] = str(error)
            raise

    patch.setattr(AppendQueue, "write_pending", remember)


def rolls_at_the_wrong_offset(patch: Patch) -> None:
    roll = AppendQueue._roll_at
    patch.setattr(AppendQueue, "_roll_at", lambda self, base_offset: roll(self, base_offset + 1))


def indexes_the_next_offset(patch: Patch) -> None:
    """Index entries carry the offset after the one they are for."""
    note = Segment.note

    def noted(self: Any, last_offset: int, timestamp: int, size: int, *rest: Any, **named: Any) -> None:
        note(self, last_offset + 1, timestamp, size, *rest, **named)

    patch.setattr(Segment, "note", noted)


def speaks_as_a_follower_for_its_leader(patch: Patch) -> None:
    patch.setattr(fetch_responses, "_certain", lambda replicas, _, error: in_doubt(replicas, error))


def knows_one_batch_of_each_producer_of_a_snapshot(patch: Patch) -> None:
    patch.setattr(LogProducers, "add_batches_before_snapshot", lambda _: False)


SEEDED_LOG_BUGS: dict[str, Callable[[Patch], None]] = {
    "compacts latest records away": compacts_latest_records_away,
    "compacts every third record away": compacts_every_third_record_away,
    "deletes records up to the log end": deletes_records_up_to_the_log_end,
    "refuses batches across the log start": refuses_batches_across_the_log_start,
    "keeps a refused write in memory": keeps_a_refused_write_in_memory,
    "writes no more once refused": writes_no_more_once_refused,
    "rolls at the wrong offset": rolls_at_the_wrong_offset,
    "indexes the next offset": indexes_the_next_offset,
    "speaks as a follower for its leader": speaks_as_a_follower_for_its_leader,
    "knows one batch of each producer of a snapshot": knows_one_batch_of_each_producer_of_a_snapshot,
}
