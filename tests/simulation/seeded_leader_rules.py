"""Bugs in what leaders and logs do with transactions, seeded one at a time, for tests only; see docs/seeded-bugs.md."""

from contextlib import suppress
from typing import Any

from ottla.broker.coordinators.marker_sender import _Order
from ottla.broker.replicas import transaction_verification
from ottla.broker.replicas.delayed_fetch import DelayedFetch
from ottla.broker.replicas.transaction_markers import TransactionMarkers
from ottla.broker.replicas.transaction_verification import PendingVerification, TransactionOperation, Verified
from ottla.coordinator.durable_state import DurableState, PendingOffsets
from ottla.coordinator.offsets import fetch
from ottla.protocol.errors import ErrorCode, TransactionCoordinatorFenced
from ottla.storage import compaction, indexes, log_reader, producer_state
from ottla.storage.append_queue import AppendQueue
from ottla.storage.marker_retention import MarkerRetention
from ottla.storage.producer_entry import NO_OFFSET
from ottla.storage.producer_pages import ExpirySlice
from ottla.storage.producer_snapshot import ENTRY
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.producer_table import ProducerTable
from ottla.storage.segment import Segment
from ottla.storage.verification_guards import NOT_VERIFIED, VerificationGuard, VerificationGuards

Patch = Any


def sends_markers_after_resigning(patch: Patch) -> None:
    """TT-7: what comes back for a coordinator that is none any more counts."""
    patch.setattr(_Order, "is_void", property(lambda order: order.is_fenced))


def ignores_the_coordinator_epoch(patch: Patch) -> None:
    """TT-8: a coordinator that was replaced may still end transactions."""
    check_marker = ProducerStateManager.check_marker

    def check(self: ProducerStateManager, *arguments: Any) -> None:
        with suppress(TransactionCoordinatorFenced):
            check_marker(self, *arguments)

    patch.setattr(ProducerStateManager, "check_marker", check)


def forgets_the_coordinator_epoch(patch: Patch) -> None:
    """TT-8: the coordinator epoch is checked, and no marker leaves one behind."""
    after_marker = producer_state._after_marker
    patch.setattr(
        producer_state, "_after_marker", lambda *arguments: after_marker(*arguments)._replace(coordinator_epoch=-1)
    )


def refuses_repeated_markers(patch: Patch) -> None:
    """TT-10: the repetition of a marker whose answer was lost leaves its transactional id pending."""
    check_marker = ProducerStateManager.check_marker

    def check(self: ProducerStateManager, producer_id: int, epoch: int, marker: Any, version: int) -> None:
        state = self._table.find(producer_id)
        if version >= 2 and state is not None and epoch == state.epoch:
            raise producer_state._of_an_older_epoch(producer_id, epoch, state.epoch)
        check_marker(self, producer_id, epoch, marker, version)

    patch.setattr(ProducerStateManager, "check_marker", check)


def accepts_late_markers(patch: Patch) -> None:
    """TT-11: the marker of one transaction ends the next, whose batches have the same epoch."""
    check_marker = ProducerStateManager.check_marker

    def check(self: ProducerStateManager, producer_id: int, epoch: int, marker: Any, _: int) -> None:
        check_marker(self, producer_id, epoch, marker, 1)

    patch.setattr(ProducerStateManager, "check_marker", check)


def waits_for_the_high_watermark(patch: Patch) -> None:
    """TT-17: a parked reader of committed records looks at the high watermark, not at the last stable offset."""
    try_complete_for = DelayedFetch.try_complete_for

    def as_uncommitted(self: DelayedFetch, key: Any) -> bool:
        self._isolation_level = 0
        return try_complete_for(self, key)

    patch.setattr(DelayedFetch, "try_complete_for", as_uncommitted)


def lists_what_begins_behind_the_reader(patch: Patch) -> None:
    """TT-18: an aborted transaction that began before the first record returned is not listed."""
    between = indexes.aborted_between

    def behind(found: Any, first_offset: int, end_offset: int) -> Any:
        return [entry for entry in between(found, first_offset, end_offset) if entry.first_offset >= first_offset]

    patch.setattr(log_reader, "aborted_between", behind)


def lists_what_ends_in_the_answer(patch: Patch) -> None:
    """TT-18: an aborted transaction whose marker lies behind what is returned is not listed."""
    between = indexes.aborted_between

    def within(found: Any, first_offset: int, end_offset: int) -> Any:
        return [entry for entry in between(found, first_offset, end_offset) if entry.last_offset < end_offset]

    patch.setattr(log_reader, "aborted_between", within)


def keeps_no_index_on_followers(patch: Patch) -> None:
    """TT-19: a follower that becomes the leader does not know which transactions were aborted."""
    append_as_follower, note_aborted = AppendQueue.append_as_follower, Segment.note_aborted
    follows = [False]

    def append(self: AppendQueue, *arguments: Any, **named: Any) -> Any:
        follows[0] = True
        try:
            return append_as_follower(self, *arguments, **named)
        finally:
            follows[0] = False

    patch.setattr(AppendQueue, "append_as_follower", append)
    patch.setattr(Segment, "note_aborted", lambda self, entry: None if follows[0] else note_aborted(self, entry))


def keeps_the_index_of_what_was_cut(patch: Patch) -> None:
    """TT-20: markers that were cut off stay in the transaction index."""
    patch.setattr(Segment, "forget_aborted_from", lambda *_: None)


def snapshots_no_open_transactions(patch: Patch) -> None:
    """TT-21: after a restart readers see what is undecided."""
    decode = producer_state.decode_snapshot

    def closed(snapshot: bytes) -> memoryview:
        entries = ENTRY.iter_unpack(decode(snapshot))
        return memoryview(b"".join(ENTRY.pack(*fields[:-1], NO_OFFSET) for fields in entries))

    patch.setattr(producer_state, "decode_snapshot", closed)


def expires_open_transactions(patch: Patch) -> None:
    """TT-22: a producer is forgotten while its transaction is open."""
    expire = ProducerTable.expire

    def all_of_them(self: ProducerTable, latest_ms: int, _: Any, from_id: int | None) -> ExpirySlice:
        return expire(self, latest_ms, frozenset(), from_id)

    patch.setattr(ProducerTable, "expire", all_of_them)


def takes_any_guard(patch: Patch) -> None:
    """TT-23: that there was an answer is enough; a marker since then does not matter."""
    check_order = producer_state._check_order

    def flag(producer_id: int, state: Any, header: Any, kept: Any, presented: Any) -> None:
        check_order(producer_id, state, header, presented or kept, presented)

    patch.setattr(producer_state, "_check_order", flag)


def keeps_guards_over_markers(patch: Patch) -> None:
    """TT-23: the guard survives the marker where epochs are not raised."""
    patch.setattr(VerificationGuards, "drop_by_marker", lambda *_: None)


def drops_guards_of_the_next_transaction(patch: Patch) -> None:
    """TT-24: the marker of one transaction takes the guard of the next, which is being registered."""
    patch.setattr(VerificationGuards, "drop_by_marker", lambda self, producer_id, _: self.drop(producer_id))


def keeps_guards_over_terms(patch: Patch) -> None:
    """TT-25: what was verified in another term of leadership counts."""
    patch.setattr(ProducerStateManager, "drop_guards", lambda _: None)


def asks_nothing(patch: Patch) -> None:
    """TT-25: no coordinator is asked where nothing is open."""

    def look(self: PendingVerification) -> None:
        guards = {(each.topic, each.partition): NOT_VERIFIED for each in self._batches}
        self.verified, self._unknown = Verified(guards, {}), []

    patch.setattr(PendingVerification, "_look", look)


def appends_what_comes_second_first(patch: Patch) -> None:
    """TT-26: a later batch overtakes one that waits for its coordinator."""
    take = VerificationGuards.take

    def greatest(self: VerificationGuards, producer_id: int, *arguments: Any, **named: Any) -> VerificationGuard:
        guard = take(self, producer_id, *arguments, **named)
        guard.lowest_sequence = producer_state.SEQUENCE_MASK
        return guard

    patch.setattr(VerificationGuards, "take", greatest)


def lets_aborted_values_outdate(patch: Patch) -> None:
    """TT-27: compaction takes an aborted value for the latest of its key."""
    patch.setattr(MarkerRetention, "is_aborted", lambda *_: False)


def lets_markers_outdate_each_other(patch: Patch) -> None:
    """TT-27: compaction takes the key of a marker for a key."""
    patch.setattr(compaction._Cleaner, "_kept_marker", lambda *_: None)


def removes_markers_before_their_records(patch: Patch) -> None:
    """TT-27: a marker goes while records of its transaction are there."""
    patch.setattr(MarkerRetention, "ends_seen_data", lambda *_: False)


def compacts_undecided_records(patch: Patch) -> None:
    """TT-28: compaction looks beyond the last stable offset."""
    cleanable = compaction._cleanable_segments
    patch.setattr(compaction, "_cleanable_segments", lambda log, now_ms, _: cleanable(log, now_ms, log.log_end_offset))


def shows_pending_offsets(patch: Patch) -> None:
    """TT-29: an offset counts when its record is committed, aborted or not."""

    def replay(self: DurableState, key: Any, value: bytes | None, record_offset: int, _: int) -> None:
        self._replay_offset(key, value, record_offset)

    patch.setattr(DurableState, "_replay_pending", replay)


def merges_offsets_in_the_order_of_markers(patch: Patch) -> None:
    """TT-29: of two transactions the one that ended last wins."""

    def merge(self: DurableState, key: Any, logged: Any) -> None:
        self.offsets.setdefault(key.group_id, {})[key.topic, key.partition] = logged

    patch.setattr(DurableState, "_merge", merge)


def applies_offsets_of_every_producer(patch: Patch) -> None:
    """TT-29: a marker ends the transactions of all producers."""
    take = PendingOffsets.take

    def take_all(self: PendingOffsets, _: int) -> Any:
        for producer_id in list(self._by_producer):
            yield from take(self, producer_id)

    patch.setattr(PendingOffsets, "take", take_all)


def leaves_pending_offsets_of_deleted_groups(patch: Patch) -> None:
    """TT-30: a later marker brings back what was deleted."""
    patch.setattr(PendingOffsets, "remove", lambda *_: None)


def hides_markers_from_groups(patch: Patch) -> None:
    """TT-31: a marker is written past the group coordinator, which learns of it when it loads its log."""
    init = TransactionMarkers.__init__

    def hide(self: TransactionMarkers, runtime: Any, replicas: Any, _: Any, report: Any) -> None:
        init(self, runtime, replicas, lambda *_: None, report)

    patch.setattr(TransactionMarkers, "__init__", hide)


def calls_pending_offsets_stable(patch: Patch) -> None:
    """TT-32: only commits on their way count, not those of transactions."""
    patch.setattr(fetch, "_is_unstable", fetch.has_open_commit)


def gives_old_producers_new_errors(patch: Patch) -> None:
    """TT-36: every version of Produce is answered TRANSACTION_ABORTABLE."""
    error = transaction_verification._error

    def of_the_newest(code: ErrorCode, _: Any) -> Any:
        return error(code, TransactionOperation.REGISTER)

    patch.setattr(transaction_verification, "_error", of_the_newest)
