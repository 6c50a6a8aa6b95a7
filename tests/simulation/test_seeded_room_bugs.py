"""Seeded bugs that the tests of one room find, more quickly than any simulation (docs/seeded-bugs.md)."""

import pytest

from ottla.coordinator.classic import sync
from ottla.coordinator.classic.states import COMPLETING_REBALANCE
from ottla.coordinator.runtime.partition import CoordinatorPartition, Phase
from ottla.protocol.errors import ErrorCode
from ottla.timer.purgatory import Purgatory
from ottla.timer.wheel import TimingWheel
from tests.coordinator.classic import test_sync
from tests.coordinator.harness import Shell
from tests.coordinator.offsets import test_commit
from tests.coordinator.runtime import test_hashing
from tests.fakes.disk import Loss
from tests.simulation.cluster.seeded_bugs import write_in_place
from tests.storage import test_files
from tests.timer import test_purgatory


def check_the_generation_first(patch):
    error_in = sync._error_in

    def hasty(group, event):
        return ErrorCode.ILLEGAL_GENERATION if event.generation != group.generation else error_in(group, event)

    patch.setattr(sync, "_error_in", hasty)


def an_unknown_member_with_an_old_generation():
    test_sync.test_order_of_checks(Shell(), *test_sync.CHECKS["T-1: unknown member before generation"])


def apply_whatever_was_stored(patch):
    patch.setattr(sync.AssignmentStored, "_is_awaited", lambda stored: stored.group.state is COMPLETING_REBALANCE)


def a_late_store():
    test_sync.test_late_store_of_older_generation_changes_nothing(Shell())


def answer_while_loading(patch):
    step = CoordinatorPartition.step

    def eager(partition, event, now_ms, wall_ms):
        phase = partition.phase
        partition.phase = Phase.ACTIVE if phase is Phase.LOADING else phase
        effects = step(partition, event, now_ms, wall_ms)
        partition.phase = phase
        return effects

    patch.setattr(CoordinatorPartition, "step", eager)


def replace_in_place(patch):
    patch.setattr(test_files, "write_atomically", write_in_place)


def a_crash_while_a_file_is_replaced():
    test_files.test_file_replaced_atomically_is_old_or_new_after_any_crash(Loss.NOTHING)


def watch_without_a_second_look(patch):
    def watch(purgatory, operation, keys):
        purgatory._watch(operation, keys)
        operation.timer = purgatory._wheel.schedule(operation.deadline_ms, operation.on_expiration)
        return False

    patch.setattr(Purgatory, "watch", watch)


def an_event_in_between():
    wheel = TimingWheel()
    purgatory = Purgatory("fetch", wheel)
    test_purgatory.test_event_between_the_first_try_and_watching_is_not_missed(purgatory, wheel)


def hash_code_points(patch):
    def java_hash(text):
        value = 0
        for character in text:
            value = (31 * value + ord(character)) & 0xFFFF_FFFF
        return value - 2**32 if value >= 2**31 else value

    patch.setattr(test_hashing, "java_hash", java_hash)


def a_group_beyond_the_basic_plane():
    test_hashing.test_the_hash_is_javas_over_utf16_units("😀", 1772899, 49)


def offsets_of_a_coordinator_that_loads():
    test_commit.test_coordinator_that_is_not_loaded_answers_no_offset(Shell(), "loading")


SEEDED = {
    "T-1": (check_the_generation_first, an_unknown_member_with_an_old_generation),
    "T-9": (apply_whatever_was_stored, a_late_store),
    "T-10": (answer_while_loading, offsets_of_a_coordinator_that_loads),
    "T-21": (replace_in_place, a_crash_while_a_file_is_replaced),
    "T-23": (watch_without_a_second_look, an_event_in_between),
    "T-27": (hash_code_points, a_group_beyond_the_basic_plane),
}


@pytest.mark.parametrize(("seed_bug", "test"), SEEDED.values(), ids=SEEDED.keys())
def test_a_seeded_bug_is_found(monkeypatch, seed_bug, test):
    test()
    seed_bug(monkeypatch)
    with pytest.raises(AssertionError):
        test()
