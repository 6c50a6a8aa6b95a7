"""Bugs of one broker that lose, double or reorder, seeded one at a time, for tests only; see docs/seeded-bugs.md."""

from collections.abc import Callable
from itertools import count
from typing import Any

from ottla.broker.replicas import delayed_fetch, fetch_responses
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.durable_state import DurableState
from ottla.protocol.records.batch import CONTROL_BIT, assign_offset_and_epoch
from ottla.storage import producer_state
from ottla.storage.append_queue import AppendQueue
from ottla.storage.log_reader import LogReader
from ottla.storage.producer_state import ProducerStateManager
from tests.audit.workload import TOPIC
from tests.simulation.cluster.seeded_log_bugs import (
    compacts_every_third_record_away,
    compacts_latest_records_away,
    deletes_records_up_to_the_log_end,
    indexes_the_next_offset,
    rolls_at_the_wrong_offset,
)
from tests.simulation.cluster.seeded_transaction_bugs import hides_no_aborted_transactions, reads_undecided_records
from tests.simulation.seeded_leader_rules import lists_what_begins_behind_the_reader, lists_what_ends_in_the_answer

Patch = Any
Seeded = Callable[[Patch], None]


def answers_what_it_did_not_write(patch: Patch) -> None:
    """Some batches get offsets and an answer, and are not in the queue that is written."""
    enqueue, numbers = AppendQueue._enqueue, count(1)

    def forgetful(self: Any, records: Any, header: Any, base_offset: int, now_wall_ms: int) -> None:
        if self._local.topic != TOPIC or header.attributes & CONTROL_BIT or next(numbers) % 7:
            enqueue(self, records, header, base_offset, now_wall_ms)
        else:
            self._local.next_offset = base_offset + header.last_offset_delta + 1

    patch.setattr(AppendQueue, "_enqueue", forgetful)


def writes_some_batches_twice(patch: Patch) -> None:
    enqueue, numbers = AppendQueue._enqueue, count(1)

    def twice(self: Any, records: Any, header: Any, base_offset: int, now_wall_ms: int) -> None:
        enqueue(self, records, header, base_offset, now_wall_ms)
        if not header.attributes & CONTROL_BIT and not next(numbers) % 5:
            copy = memoryview(bytearray(records))
            second = self._local.next_offset
            assign_offset_and_epoch(copy, 0, second, self._epochs.latest_epoch)
            enqueue(self, copy, header, second, now_wall_ms)

    patch.setattr(AppendQueue, "_enqueue", twice)


def writes_what_came_last_first(patch: Patch) -> None:
    """Of the batches of one event."""
    write = AppendQueue._write_queue

    def reversed_queue(self: Any) -> None:
        self.batches.reverse()
        write(self)

    patch.setattr(AppendQueue, "_write_queue", reversed_queue)


def changes_places_of_batches(patch: Patch) -> None:
    """Of the batches of one event, with offsets in the order of the log."""
    write = AppendQueue._write_queue

    def swapped(self: Any) -> None:
        if len(self.batches) > 1:
            base = int.from_bytes(self.batches[0][:8], "big")
            self.batches.reverse()
            for batch in self.batches:
                assign_offset_and_epoch(batch, 0, base, self._epochs.latest_epoch)
                base += int.from_bytes(batch[23:27], "big") + 1
        write(self)

    patch.setattr(AppendQueue, "_write_queue", swapped)


def knows_no_repetitions(patch: Patch) -> None:
    """What a producer sends again is written again."""
    check = ProducerStateManager.check

    def unknowing(self: Any, header: Any, guard: Any = None) -> Any:
        state = self._recent.get(header.producer_id) or self._table.find_packed(header.producer_id)
        known = state is not None and producer_state._find_duplicate(state, header.base_sequence, header.last_sequence)
        return None if known else check(self, header, guard)

    patch.setattr(ProducerStateManager, "check", unknowing)


def takes_any_sequence(patch: Patch) -> None:
    patch.setattr(producer_state, "_check_order", lambda *_: None)


def cuts_the_first_batch_off(patch: Patch) -> None:
    """Some reads begin behind the batch that was asked for."""
    read, numbers = LogReader.read, count(1)

    def skipping(self: Any, offset: int, max_bytes: int, upper_bound: int, *rest: Any, **named: Any) -> Any:
        found = read(self, offset, max_bytes, upper_bound, *rest, **named)
        length = int.from_bytes(found.records[8:12], "big") + 12 if len(found.records) else 0
        if 0 < length < len(found.records) and not named and not next(numbers) % 3:
            return found._replace(records=found.records[length:])
        return found

    patch.setattr(LogReader, "read", skipping)


def answers_an_older_high_watermark(patch: Patch) -> None:
    describe, numbers = fetch_responses.describe, count(1)

    def stale(partition: Any, answer: Any) -> None:
        describe(partition, answer)
        if not next(numbers) % 4:
            answer.high_watermark = max(answer.high_watermark - 3, 0)

    patch.setattr(fetch_responses, "describe", stale)
    patch.setattr(delayed_fetch, "describe", stale, raising=False)


def forgets_some_commits(patch: Patch) -> None:
    merge, numbers = DurableState._merge, count(1)

    def forgetful(durable: Any, key: Any, logged: Any) -> None:
        if next(numbers) % 5:
            merge(durable, key, logged)

    patch.setattr(DurableState, "_merge", forgetful)


def takes_commits_of_any_generation(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "offset_commit_error", lambda *_: None)


def deletes_what_is_not_old(patch: Patch) -> None:
    """DeleteRecords deletes a bit more than it was asked for."""
    from ottla.storage.retention import Retention

    delete = Retention.delete_records_before

    def more(self: Any, offset: int) -> None:
        delete(self, min(offset + 2, self._local.log_end_offset))

    patch.setattr(Retention, "delete_records_before", more)


FOUND: dict[str, tuple[Seeded, str]] = {
    each.__name__: (each, kind)
    for each, kind in (
        (answers_what_it_did_not_write, "B1"),
        (writes_some_batches_twice, "B2"),
        (writes_what_came_last_first, "B1"),
        (changes_places_of_batches, "B1"),
        (knows_no_repetitions, "B2"),
        (takes_any_sequence, "B3"),
        (cuts_the_first_batch_off, "B6"),
        (answers_an_older_high_watermark, "B4"),
        (forgets_some_commits, "B1"),
        (takes_commits_of_any_generation, "B7"),
        (deletes_what_is_not_old, "B1"),
        (deletes_records_up_to_the_log_end, "B1"),
        (rolls_at_the_wrong_offset, "B1"),
        (indexes_the_next_offset, "B1"),
        (hides_no_aborted_transactions, "B5"),
        (reads_undecided_records, "B5"),
        (lists_what_begins_behind_the_reader, "B5"),
        (lists_what_ends_in_the_answer, "B5"),
    )
}
"""By name: the bug, and a kind of finding that it leads to."""
NOT_SEEN: tuple[Seeded, ...] = (compacts_latest_records_away, compacts_every_third_record_away)
"""Batches of a compacted topic may lack records or be gone, and records are not looked into."""
