"""Bugs in what coordinators of transactions decide, seeded one at a time, for tests only; see docs/seeded-bugs.md."""

from dataclasses import replace
from typing import Any

from ottla.broker.handlers import add_partitions_to_txn, api_versions, end_txn
from ottla.coordinator.transactions import add_partitions, context, expiry, init_producer_id
from ottla.coordinator.transactions import end_txn as ending
from ottla.coordinator.transactions.context import TransactionContext
from ottla.coordinator.transactions.entry import NO_EPOCH, NO_PRODUCER_ID, TransactionalIdEntry
from ottla.coordinator.transactions.events import ProducerResult, WriteMarkers
from ottla.protocol.errors import ErrorCode

Patch = Any


def sends_markers_before_the_decision(patch: Patch) -> None:
    """TT-1: markers leave when the record of the decision is appended."""
    write_transition = TransactionContext.write_transition

    def send(self: TransactionContext, entry: Any, target: Any, last_epoch: int, **named: Any) -> None:
        write_transition(self, entry, target, last_epoch, **named)
        if target.is_decided:
            pair = target.producer_id, target.producer_epoch
            partitions = tuple(sorted(target.partitions))
            self.dispatch(WriteMarkers(entry.transactional_id, entry.pending.number, *pair, True, 0, partitions))

    patch.setattr(TransactionContext, "write_transition", send)


def takes_a_timeout_for_a_failure(patch: Patch) -> None:
    """TT-3: a decision whose append has timed out is forgotten, though its record may become committed."""
    patch.setattr(context, "IN_DOUBT", frozenset())


def prepares_two_transitions(patch: Patch) -> None:
    """TT-4: a request is served while a transition of its id is under way."""
    patch.setattr(TransactionalIdEntry, "busy_error", None)


def counts_markers_of_earlier_transactions(patch: Patch) -> None:
    """TT-7: what comes back late counts for whatever is under way."""
    patch.setattr(TransactionalIdEntry, "is_pending", lambda entry, _: entry.pending is not None)


def answers_a_pair_before_the_abort(patch: Patch) -> None:
    """TT-13: the new producer begins while the transaction of the old one is being aborted."""
    fence = init_producer_id.fence

    def hasty(context: Any, entry: Any, reason: Any, *, result: Any, **named: Any) -> None:
        pair = entry.metadata.producer_id, entry.metadata.producer_epoch + 1
        fence(context, entry, reason, result=ProducerResult(ErrorCode.NONE, *pair), **named)

    patch.setattr(init_producer_id, "fence", hasty)


def knows_no_repeated_initialization(patch: Patch) -> None:
    """TT-14: a producer whose answer was lost is fenced by its own request."""
    patch.setattr(TransactionalIdEntry, "last_epoch", property(lambda _: NO_EPOCH, lambda *_: None))


def lets_the_predecessor_repeat(patch: Patch) -> None:
    """TT-14: the producer that was replaced obtains the epoch of the one that has replaced it."""
    next_pair = init_producer_id._next_pair

    def open_to_all(context: Any, entry: Any, request: Any) -> Any:
        pair = next_pair(context, entry, request)
        return pair if isinstance(pair, ErrorCode) else pair._replace(last_epoch=entry.metadata.producer_epoch)

    patch.setattr(init_producer_id, "_next_pair", open_to_all)


def knows_no_repeated_end(patch: Patch) -> None:
    """TT-14: the epoch has risen with the end of the transaction, so that the repetition counts as fenced."""
    patch.setattr(ending, "_repeated", lambda *_, **__: ErrorCode.PRODUCER_FENCED)


def adds_partitions_of_a_greater_epoch(patch: Patch) -> None:
    """TT-15: only smaller epochs are refused."""
    pair_error = add_partitions._pair_error

    def greater_will_do(entry: Any, request: Any) -> Any:
        error = pair_error(entry, request)
        is_greater = request.producer_epoch > entry.metadata.producer_epoch
        return None if error is ErrorCode.PRODUCER_FENCED and is_greater else error

    patch.setattr(add_partitions, "_pair_error", greater_will_do)


def ends_transactions_of_a_greater_epoch(patch: Patch) -> None:
    """TT-15, of EndTxn."""
    end_error = ending._end_error

    def greater_will_do(entry: Any, request: Any) -> Any:
        epoch = max(request.producer_epoch, entry.metadata.producer_epoch)
        known = entry.metadata.producer_epoch if epoch == request.producer_epoch else request.producer_epoch
        return end_error(entry, replace(request, producer_epoch=known))

    patch.setattr(ending, "_end_error", greater_will_do)


def counts_the_timeout_from_the_last_partition(patch: Patch) -> None:
    """TT-33: who goes on adding partitions keeps a transaction open for ever."""
    open_ms = expiry._open_ms

    def since_the_last(context: Any, entry: Any) -> Any:
        return open_ms(context, entry) and context.wall_ms - entry.metadata.last_update_ms

    patch.setattr(expiry, "_open_ms", since_the_last)


def stores_no_next_producer_id(patch: Patch) -> None:
    """TT-35: only memory knows the producer id that the client was promised."""
    build = context.build_transaction_value

    def forget(metadata: Any, version: int) -> bytes:
        return build(metadata._replace(next_producer_id=NO_PRODUCER_ID), version)

    patch.setattr(context, "build_transaction_value", forget)


def answers_the_pair_of_the_record(patch: Patch) -> None:
    """EndTxn answers with the pair of the decision, whose epoch is used up."""
    decide = ending.decide_and_raise_epoch

    def of_the_record(context: Any, entry: Any, *, result: Any, **named: Any) -> None:
        pair = entry.metadata.producer_id, entry.metadata.producer_epoch + 1
        decide(context, entry, result=ProducerResult(result.error, *pair), **named)

    patch.setattr(ending, "decide_and_raise_epoch", of_the_record)


def gives_old_clients_new_errors(patch: Patch) -> None:
    """TT-36: every version of EndTxn is answered PRODUCER_FENCED."""
    patch.setattr(end_txn, "producer_error", lambda code, **_: code)


def shows_no_newer_levels(patch: Patch) -> None:
    """TT-37: the epoch of the features is no newer than what clients begin with, so they stay at level 0."""
    handle = api_versions.handle

    def without_an_epoch(server: Any, metadata: Any, context: Any, request: Any) -> Any:
        response = handle(server, metadata, context, request)
        response.finalized_features_epoch = -1
        return response

    patch.setattr(api_versions, "handle", without_an_epoch)


def adds_the_partitions_that_it_can(patch: Patch) -> None:
    """TT-38: what is wrong with one partition keeps no other out of the transaction."""
    refused = add_partitions_to_txn._refused

    def all_or_none(image: Any, partitions: Any, internal: Any) -> Any:
        return (
            {}
            if any(not refused(image, [each], internal) for each in partitions)
            else refused(image, partitions, internal)
        )

    patch.setattr(add_partitions_to_txn, "_refused", all_or_none)
