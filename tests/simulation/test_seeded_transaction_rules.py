"""Seeded bugs of transactions that tests of one room find, more quickly than simulations (docs/seeded-bugs.md)."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker import (
    test_features,
    test_read_committed,
    test_transaction_handlers,
    test_transactional_produce,
    test_txn_offset_commit,
)
from tests.coordinator.harness import Shell
from tests.coordinator.offsets import test_txn_commit
from tests.coordinator.transactions import test_end_txn, test_expiry, test_init_producer_id
from tests.fakes.disk import FakeDisk
from tests.simulation import seeded_coordinator_rules as coordinator
from tests.simulation import seeded_leader_rules as leader
from tests.storage import (
    test_producer_state,
    test_transactional_compaction,
    test_transactions,
    test_verification_guards,
)
from tests.storage.support import new_log

Patch = pytest.MonkeyPatch
SeedBug = Callable[[Patch], None]

# Not what the test expects, or what it waits for does not come, or what must not be refused is.
FAILURES = (AssertionError, TimeoutError, KafkaError, pytest.fail.Exception)
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def offsets_of_a_group(tmp_path: Path) -> None:
    async def played() -> None:
        says_yes = test_txn_offset_commit.Coordinator()
        async with test_txn_offset_commit.serving(tmp_path, says_yes) as broker:
            await test_txn_offset_commit.test_offsets_show_with_the_commit_marker(broker, True, 5)

    asyncio.run(played())


IN_COORDINATORS: list[tuple[SeedBug, Callable[[], None]]] = [
    (
        coordinator.sends_markers_before_the_decision,
        test_end_txn.test_nothing_is_sent_before_the_decision_is_durable,
    ),
    (
        coordinator.takes_a_timeout_for_a_failure,
        partial(test_end_txn.test_a_decision_in_doubt_is_neither_undone_nor_acted_on, False),
    ),
    (
        coordinator.prepares_two_transitions,
        partial(test_init_producer_id.test_an_open_transaction_is_aborted_before_a_pair_is_given, 2),
    ),
    (
        coordinator.counts_markers_of_earlier_transactions,
        test_end_txn.test_markers_of_an_earlier_transaction_are_dropped,
    ),
    (
        coordinator.answers_a_pair_before_the_abort,
        partial(test_init_producer_id.test_an_open_transaction_is_aborted_before_a_pair_is_given, 2),
    ),
    (
        coordinator.knows_no_repeated_initialization,
        test_init_producer_id.test_a_repeated_request_gets_the_same_pair_again,
    ),
    (
        coordinator.lets_the_predecessor_repeat,
        test_init_producer_id.test_a_fenced_predecessor_cannot_repeat_its_way_in,
    ),
    (coordinator.knows_no_repeated_end, partial(test_end_txn.test_a_repeated_v5_end_gets_the_same_pair, True)),
    (
        coordinator.adds_partitions_of_a_greater_epoch,
        partial(test_end_txn.test_another_epoch_is_fenced_whether_smaller_or_greater, 1),
    ),
    (
        coordinator.ends_transactions_of_a_greater_epoch,
        partial(test_end_txn.test_another_epoch_is_fenced_whether_smaller_or_greater, 1),
    ),
    (
        coordinator.counts_the_timeout_from_the_last_partition,
        test_expiry.test_further_partitions_do_not_extend_a_transaction,
    ),
    (coordinator.stores_no_next_producer_id, test_end_txn.test_a_rollover_survives_a_failover),
    (coordinator.answers_the_pair_of_the_record, test_end_txn.test_v5_rolls_an_exhausted_epoch_over),
]

OF_LOGS: list[tuple[SeedBug, Callable[..., None]]] = [
    (leader.ignores_the_coordinator_epoch, test_transactions.test_marker_of_an_older_epoch_or_coordinator_is_refused),
    (leader.forgets_the_coordinator_epoch, test_transactions.test_marker_of_an_older_epoch_or_coordinator_is_refused),
    (leader.refuses_repeated_markers, test_transactions.test_late_marker_of_the_transaction_before_is_refused),
    (leader.accepts_late_markers, test_transactions.test_late_marker_of_the_transaction_before_is_refused),
    (
        leader.keeps_no_index_on_followers,
        test_transactions.test_aborted_records_are_listed_for_a_reader_in_their_middle,
    ),
    (leader.keeps_the_index_of_what_was_cut, test_transactions.test_marker_that_is_cut_off_leaves_the_index),
    (leader.snapshots_no_open_transactions, test_transactions.test_snapshot_keeps_transactions_open),
]

OF_COMPACTED_LOGS: list[tuple[SeedBug, Callable[..., None]]] = [
    (
        leader.lets_aborted_values_outdate,
        test_transactional_compaction.test_aborted_value_does_not_outdate_the_committed_one,
    ),
    (leader.lets_markers_outdate_each_other, test_transactional_compaction.test_markers_do_not_outdate_each_other),
    (
        leader.removes_markers_before_their_records,
        test_transactional_compaction.test_marker_goes_later_than_its_records,
    ),
    (leader.compacts_undecided_records, test_transactional_compaction.test_undecided_records_are_not_cleaned),
]

OF_GUARDS: list[tuple[SeedBug, Callable[..., None]]] = [
    (leader.takes_any_guard, test_verification_guards.test_answer_from_before_a_marker_counts_for_nothing),
    (leader.keeps_guards_over_markers, test_verification_guards.test_guard_goes_where_epochs_are_not_raised),
    (
        leader.drops_guards_of_the_next_transaction,
        test_verification_guards.test_guard_of_the_next_epoch_survives_the_marker_before,
    ),
    (
        leader.keeps_guards_over_terms,
        test_verification_guards.test_a_guard_of_a_past_term_makes_the_producer_ask_again,
    ),
    (
        leader.appends_what_comes_second_first,
        test_verification_guards.test_later_batch_waits_for_one_that_is_asked_about,
    ),
]

OF_OFFSETS: list[tuple[SeedBug, Callable[..., None]]] = [
    (
        leader.shows_pending_offsets,
        partial(test_txn_commit.test_marker_decides_what_readers_see, commit=False, offset=1),
    ),
    (leader.merges_offsets_in_the_order_of_markers, test_txn_commit.test_of_two_transactions_the_later_record_wins),
    (leader.applies_offsets_of_every_producer, test_txn_commit.test_marker_ends_the_transaction_of_its_producer_only),
    (
        leader.leaves_pending_offsets_of_deleted_groups,
        test_txn_commit.test_group_with_only_pending_offsets_is_deleted_for_good,
    ),
    (leader.calls_pending_offsets_stable, test_txn_commit.test_new_coordinator_waits_for_the_marker),
]

OF_BROKERS: list[tuple[SeedBug, Callable[[Path], Any]]] = [
    (
        coordinator.gives_old_clients_new_errors,
        lambda path: test_transaction_handlers.test_producers_of_every_version_are_fenced(path, 1),
    ),
    (
        coordinator.adds_the_partitions_that_it_can,
        test_transaction_handlers.test_one_unknown_partition_keeps_the_others_out,
    ),
    (coordinator.shows_no_newer_levels, test_features.test_level_is_changed_with_a_greater_epoch_and_kept),
    (leader.waits_for_the_high_watermark, test_read_committed.test_marker_wakes_a_parked_reader),
    (
        leader.lists_what_begins_behind_the_reader,
        test_read_committed.test_reader_in_the_middle_learns_what_was_aborted,
    ),
    (leader.lists_what_ends_in_the_answer, test_read_committed.test_reader_in_the_middle_learns_what_was_aborted),
    (
        leader.asks_nothing,
        lambda path: test_transactional_produce.test_coordinator_is_asked_once_for_a_transaction(path, 11, False),
    ),
    (
        leader.gives_old_producers_new_errors,
        lambda path: test_transactional_produce.test_producer_gets_what_its_version_knows(
            path, ABORTABLE, ErrorCode.INVALID_TXN_STATE, ABORTABLE, ABORTABLE
        ),
    ),
]


def compacted_log() -> Any:
    return new_log(FakeDisk(), test_transactional_compaction.CONFIG)


SEEDED: list[tuple[SeedBug, Callable[[Path], None]]] = [
    *((bug, lambda _, test=test: test()) for bug, test in IN_COORDINATORS),
    *((bug, lambda _, test=test: test(new_log(FakeDisk()))) for bug, test in OF_LOGS),
    *((bug, lambda _, test=test: test(compacted_log())) for bug, test in OF_COMPACTED_LOGS),
    *((bug, lambda _, test=test: test(test_verification_guards.Producing())) for bug, test in OF_GUARDS),
    *((bug, lambda _, test=test: test(Shell())) for bug, test in OF_OFFSETS),
    *((bug, lambda path, test=test: asyncio.run(test(path))) for bug, test in OF_BROKERS),
    (leader.expires_open_transactions, lambda _: test_producer_state.test_an_open_transaction_keeps_its_producer()),
    (leader.hides_markers_from_groups, offsets_of_a_group),
]


@pytest.mark.parametrize(("seed_bug", "test"), [pytest.param(*each, id=each[0].__name__) for each in SEEDED])
def test_a_seeded_bug_is_found(
    monkeypatch: Patch, tmp_path: Path, seed_bug: SeedBug, test: Callable[[Path], None]
) -> None:
    test(tmp_path / "right")
    seed_bug(monkeypatch)
    with pytest.raises(FAILURES):
        test(tmp_path / "wrong")
