"""Bugs that a kit like this is easily written with are seeded, one at a time, and its tests find them."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.testing import DeadlineExceeded, worlds
from ottla.testing.handle import Kafka
from ottla.testing.histories import GroupHistories
from ottla.testing.snapshots import log_copies
from ottla.testing.snapshots.kept_files import KeptFiles
from ottla.testing.snapshots.snapshots import Snapshots
from ottla.testing.testbed import Testbed
from ottla.testing.waits import Condition, Waits
from ottla.testing.worlds import ProducerFloor, WorldKeeper
from tests.kit import test_reset, test_snapshot_files, test_snapshots, test_waits
from tests.kit.test_plugin import loaded_by_an_unused_plugin

pytest_plugins = ("pytester",)

Patch = pytest.MonkeyPatch


@pytest.fixture
def own_bed() -> Iterator[Testbed]:
    bed = Testbed(deadline=2)
    bed.start()
    yield bed
    bed.stop()


def accepts_old_producer_ids(patch: Patch, bed: Testbed) -> None:
    """KT-12: there is no floor."""
    patch.setattr(ProducerFloor, "rise", lambda *_: None)


def begins_generations_again(patch: Patch, bed: Testbed) -> None:
    """KT-12."""
    patch.setattr(GroupHistories, "generation_max", property(lambda _: 0, lambda *_: None), raising=False)


def begins_leader_epochs_again(patch: Patch, bed: Testbed) -> None:
    """KT-12."""
    patch.setattr(TopicAdminManager, "begin_leader_epochs_at", lambda *_: None)


def polls(patch: Patch, bed: Testbed) -> None:
    """KT-13."""

    async def wait(self: Waits, condition: Condition, within_s: float) -> None:
        for _ in range(int(within_s * 100)):
            if condition.is_met():
                return
            await asyncio.sleep(0.01)
        raise DeadlineExceeded(condition.wanted, within_s, condition.explain())

    patch.setattr(Waits, "wait", wait)


def misses_what_comes_between_look_and_sleep(patch: Patch, bed: Testbed) -> None:
    """KT-13: nothing wakes the wait for what has come between the two."""
    real = Waits.wait

    async def wait(self: Waits, condition: Condition, within_s: float) -> None:
        if condition.is_met():
            return
        await asyncio.sleep(0.005)
        if condition.is_met():
            raise DeadlineExceeded(condition.wanted, within_s, condition.explain())
        await real(self, condition, within_s)

    patch.setattr(Waits, "wait", wait)


def deletes_internal_topics(patch: Patch, bed: Testbed) -> None:
    """KT-17."""
    patch.setattr(worlds, "INTERNAL_TOPICS", frozenset[str]())


def links_active_segments(patch: Patch, bed: Testbed) -> None:
    """KT-11."""
    patch.setattr(log_copies, "copy_file", lambda source, target, _: os.link(source, target))


def truncates_kept_files(patch: Patch, bed: Testbed) -> None:
    """KT-11: a sealed segment that is cut becomes the active one."""
    patch.setattr(KeptFiles, "keep_made", lambda *_: None)


def forgets_leader_epochs(patch: Patch, bed: Testbed) -> None:
    """KT-12."""
    patch.setattr(WorldKeeper, "leader_epoch_max", property(lambda _: -1, lambda *_: None), raising=False)


def lets_coordinators_answer(patch: Patch, bed: Testbed) -> None:
    """Under a restore: they see topics go that come back."""
    patch.setattr(WorldKeeper, "without_coordinators", lambda *_: nullcontext())


def keeps_in_place_what_changed(patch: Patch, bed: Testbed) -> None:
    patch.setattr(log_copies.LogCopy, "is_like", lambda *_: True)


def forgets_who_wrote_since(patch: Patch, bed: Testbed) -> None:
    """A producer of the snapshot may begin again in an epoch of its own making."""
    patch.setattr(Snapshots, "_parted", lambda *_: frozenset[int]())


def old_producers(bed: Testbed, handle: Kafka) -> None:
    test_reset.test_old_producer_id_is_refused_and_a_new_one_accepted(handle)


def identities(bed: Testbed, handle: Kafka) -> None:
    test_reset.test_identities_are_not_used_twice(handle)


def looks(bed: Testbed, handle: Kafka) -> None:
    test_waits.test_looks_follow_events_and_nothing_polls(handle)


def races(bed: Testbed, handle: Kafka) -> None:
    test_waits.test_fact_between_look_and_sleep_is_not_missed(handle)


def busy_group(bed: Testbed, handle: Kafka) -> None:
    """The first resets show it: the others would each wait for their deadline."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_reset, "RESETS", 80)
        test_reset.test_resets_under_a_busy_group_leave_no_trace(bed, handle)


def restored_producers(bed: Testbed, handle: Kafka) -> None:
    test_snapshots.test_producer_ids_that_the_state_does_not_have_are_refused(handle)


def producers_that_wrote_since(bed: Testbed, handle: Kafka) -> None:
    test_snapshots.test_known_producer_that_wrote_since_only_follows_on(handle, "nothing")


def restored_identities(bed: Testbed, handle: Kafka) -> None:
    test_snapshots.test_no_id_is_used_twice_after_a_restore(handle)


def bytes_after_appends(bed: Testbed, handle: Kafka) -> None:
    test_snapshot_files.test_bytes_of_a_snapshot_do_not_change(test_snapshot_files.append, handle, bed)


def bytes_after_a_truncation(bed: Testbed, handle: Kafka) -> None:
    test_snapshot_files.test_bytes_of_a_snapshot_do_not_change(
        test_snapshot_files.truncate_into_a_sealed_segment, handle, bed
    )


def restored_offsets(bed: Testbed, handle: Kafka) -> None:
    test_snapshots.test_offsets_stay_where_only_their_topic_is_replaced(handle)


def restored_state(bed: Testbed, handle: Kafka) -> None:
    test_snapshots.test_state_of_the_snapshot_is_there_again(handle)


@pytest.mark.parametrize(
    ("bug", "found_by"),
    [
        (accepts_old_producer_ids, old_producers),
        (begins_generations_again, identities),
        (begins_leader_epochs_again, identities),
        (polls, looks),
        (misses_what_comes_between_look_and_sleep, races),
        (deletes_internal_topics, busy_group),
        (links_active_segments, bytes_after_appends),
        (truncates_kept_files, bytes_after_a_truncation),
        (accepts_old_producer_ids, restored_producers),
        (forgets_who_wrote_since, producers_that_wrote_since),
        (begins_generations_again, restored_identities),
        (forgets_leader_epochs, restored_identities),
        (lets_coordinators_answer, restored_offsets),
        (keeps_in_place_what_changed, restored_state),
    ],
    ids=lambda each: each.__name__,
)
def test_seeded_bug_is_found(bug: Any, found_by: Any, own_bed: Testbed, monkeypatch: Patch) -> None:
    found_by(own_bed, Kafka(own_bed))
    own_bed.run(own_bed.reset())
    bug(monkeypatch, own_bed)

    with pytest.raises((AssertionError, DeadlineExceeded, pytest.fail.Exception)):
        found_by(own_bed, Kafka(own_bed))


def test_import_at_the_top_of_the_plugin_is_found(pytester: pytest.Pytester) -> None:
    """KT-1."""
    assert loaded_by_an_unused_plugin(pytester) == "[]"
    pytester.makepyfile(plugin_with_imports="import ottla.testing.waits")

    assert "ottla.testing.waits" in loaded_by_an_unused_plugin(pytester, "-p", "plugin_with_imports")
