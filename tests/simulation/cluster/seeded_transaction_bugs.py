"""Bugs in what brokers do with transactions, seeded one at a time, for tests only; see `seeded_bugs.py`."""

from collections.abc import Callable
from typing import Any

from ottla.broker.coordinators import marker_sender
from ottla.broker.coordinators.add_partitions_to_txn import AddPartitionsToTxnManager
from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.replicas import delayed_fetch
from ottla.coordinator.transactions import decisions, init_producer_id
from ottla.coordinator.transactions.context import TransactionContext
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.protocol.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.storage.transactions import Transactions
from tests.simulation.seeded_coordinator_rules import (
    sends_markers_before_the_decision,
    stores_no_next_producer_id,
)
from tests.simulation.seeded_leader_rules import asks_nothing, calls_pending_offsets_stable, keeps_no_index_on_followers

Patch = Any


def drops_markers_for_leaders_that_moved(patch: Patch) -> None:
    """TT-9: what could not be written counts as written."""

    def give_up(self: MarkerSender, markers: Any) -> None:
        self._runtime.soon(lambda: markers.order.report_written(markers.partitions))

    patch.setattr(MarkerSender, "_retry", give_up)


def does_not_go_on_with_decisions(patch: Patch) -> None:
    """TT-6: a new coordinator leaves what its predecessor has decided as it is."""
    patch.setattr(TransactionShard, "on_elected", lambda _: iter(()))


def reads_undecided_records(patch: Patch) -> None:
    """TT-16: the last stable offset is the high watermark."""
    patch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


def forgets_markers_that_are_not_replicated(patch: Patch) -> None:
    """TT-16: a transaction is over with its marker, on how many replicas it may be."""
    end = Transactions.end

    def end_at_once(self: Transactions, producer_id: int, marker_offset: int) -> Any:
        entry = end(self, producer_id, marker_offset)
        self._ended.clear()
        return entry

    patch.setattr(Transactions, "end", end_at_once)


def hides_no_aborted_transactions(patch: Patch) -> None:
    """TT-18: readers do not get the list of aborted transactions."""

    def list_none(partition: Any, target: Any, answer: Any, end_offset: int) -> None:
        answer.aborted_transactions = []

    patch.setattr(delayed_fetch, "list_aborted", list_none)


def fences_without_another_epoch(patch: Patch) -> None:
    """TT-12: InitProducerId gives the epoch that there is."""
    next_pair = init_producer_id._next_pair

    def same_epoch(context: TransactionContext, entry: Any, request: Any) -> Any:
        pair = next_pair(context, entry, request)
        if isinstance(pair, init_producer_id._NextPair) and entry.exists_in_log:
            return pair._replace(producer_epoch=entry.metadata.producer_epoch)
        return pair

    patch.setattr(init_producer_id, "_next_pair", same_epoch)


def answers_before_the_decision(patch: Patch) -> None:
    """TT-2: the client hears of the commit when its record is appended, and not when its replicas have it."""
    write_transition = TransactionContext.write_transition

    def answer_first(
        self: TransactionContext, entry: Any, target: Any, last_epoch: int, *, token: Any = None, **named: Any
    ) -> None:
        if token is not None and target.is_decided and named["result"].error is ErrorCode.NONE:
            self.reply(token, named["result"])
            token = None
        write_transition(self, entry, target, last_epoch, token=token, **named)

    patch.setattr(TransactionContext, "write_transition", answer_first)


def completes_before_markers(patch: Patch) -> None:
    """A transaction is complete when it is decided; its markers come when they come, if this coordinator stays."""
    begin_markers = decisions.begin_markers

    def complete(context: TransactionContext, entry: Any) -> None:
        begin_markers(context, entry)
        if entry.missing_markers:
            entry.missing_markers.clear()
            decisions._append_completion(context, entry)

    patch.setattr(decisions, "begin_markers", complete)


def sends_markers_of_what_it_loaded(patch: Patch) -> None:
    """A new coordinator sends the markers of decisions that its log has, and that are not replicated yet."""
    patch.setattr(marker_sender, "has_committed_what_it_loaded", lambda *_: True)


def forgets_who_asked_about_partitions(patch: Patch) -> None:
    """What a leader asks a coordinator that cannot be reached is never answered."""
    patch.setattr(AddPartitionsToTxnManager, "_answer_all", lambda *_: None)


def lists_what_was_committed_before(patch: Patch) -> None:
    """What is listed of an aborted transaction begins too early, and hides what its producer committed just before."""
    list_aborted = delayed_fetch.list_aborted

    def too_early(partition: Any, target: Any, answer: Any, end_offset: int) -> None:
        list_aborted(partition, target, answer, end_offset)
        for each in answer.aborted_transactions or ():
            each.first_offset = max(each.first_offset - 2, 0)

    patch.setattr(delayed_fetch, "list_aborted", too_early)


SEEDED_TRANSACTION_BUGS: dict[str, Callable[[Patch], None]] = {
    "drops markers for leaders that moved": drops_markers_for_leaders_that_moved,
    "does not go on with decisions": does_not_go_on_with_decisions,
    "reads undecided records": reads_undecided_records,
    "forgets markers that are not replicated": forgets_markers_that_are_not_replicated,
    "hides no aborted transactions": hides_no_aborted_transactions,
    "fences without another epoch": fences_without_another_epoch,
    "answers before the decision": answers_before_the_decision,
    "completes before markers": completes_before_markers,
    "sends markers before the decision": sends_markers_before_the_decision,
    "sends markers of what it loaded": sends_markers_of_what_it_loaded,
    "asks no coordinator": asks_nothing,
    "forgets who asked about partitions": forgets_who_asked_about_partitions,
    "lists what was committed before": lists_what_was_committed_before,
    "stores no next producer id": stores_no_next_producer_id,
    "keeps no index on followers": keeps_no_index_on_followers,
    "calls pending offsets stable": calls_pending_offsets_stable,
}
