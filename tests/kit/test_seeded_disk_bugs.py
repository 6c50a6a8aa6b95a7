"""Bugs of power cuts and of snapshots of clusters are seeded, one at a time, and the tests of them find each."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import DeadlineExceeded
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.snapshots import snapshots
from ottla.testing.snapshots.kept_files import KeptFiles
from ottla.testing.snapshots.log_copies import LogCopy
from ottla.testing.surroundings import unsynced
from ottla.testing.surroundings.disk_files import DiskState
from ottla.testing.surroundings.unsynced import UnsyncedJournal
from ottla.testing.testbed import Testbed
from tests.kit import test_cluster_snapshots, test_power_cuts, test_unsynced
from tests.kit.clusters import Replicated

Patch = pytest.MonkeyPatch


def counts_syncs_without_power(patch: Patch) -> None:
    patch.setattr(UnsyncedJournal, "cut_power", lambda _: None)


def forgets_what_is_cut_off(patch: Patch) -> None:
    patch.setattr(unsynced, "_read", lambda *_: b"")


def forgets_renames(patch: Patch) -> None:
    patch.setattr(UnsyncedJournal, "renamed", lambda *_: None)


def forgets_new_names(patch: Patch) -> None:
    """A file that was synced is there, whatever its name is."""
    real = UnsyncedJournal.opened
    patch.setattr(UnsyncedJournal, "opened", lambda self, path, fd, *, is_new: real(self, path, fd, is_new=False))


def syncs_names_with_files(patch: Patch) -> None:
    real = UnsyncedJournal.syncing

    def syncing(self: UnsyncedJournal, descriptor: int) -> None:
        real(self, descriptor)
        self._changes.clear()  # pyright: ignore[reportPrivateUsage]

    patch.setattr(UnsyncedJournal, "syncing", syncing)


def believes_the_kernel(patch: Patch) -> None:
    patch.setattr(DiskState, "boot_id", None)


def links_all_replicas(patch: Patch) -> None:
    def fill(self: LogCopy, files: KeptFiles, node_id: int, directory: Path) -> object:
        del node_id
        return real(self, files, self.node_id, directory)

    real = LogCopy.fill
    patch.setattr(LogCopy, "fill", fill)


def looks_at_the_leader_alone(patch: Patch) -> None:
    real = LogCopy.is_like
    patch.setattr(LogCopy, "is_like", lambda self, node, log: node != self.node_id or real(self, node, log))


def takes_followers_for_alike(patch: Patch) -> None:
    patch.setattr(snapshots, "_have_the_same", lambda *_: True)


@pytest.mark.parametrize(
    ("seed", "test"),
    [
        (counts_syncs_without_power, test_unsynced.test_sync_that_ends_after_the_power_is_off_saves_nothing),
        (forgets_what_is_cut_off, test_unsynced.test_truncated_end_comes_back),
        (forgets_renames, test_unsynced.test_renamed_directory_has_its_old_name_again),
        (forgets_new_names, test_unsynced.test_name_is_lost_though_its_file_was_synced),
        (syncs_names_with_files, test_unsynced.test_name_is_lost_though_its_file_was_synced),
    ],
)
def test_seeded_bug_of_the_journal_is_found(
    seed: Callable[[Patch], None], test: Callable[[test_unsynced.Disk], None], tmp_path: Path, monkeypatch: Patch
) -> None:
    test(test_unsynced.Disk(tmp_path / "sound"))
    seed(monkeypatch)

    with pytest.raises((AssertionError, OSError)):
        test(test_unsynced.Disk(tmp_path / "seeded"))


@pytest.fixture(scope="module")
def three() -> Iterator[Testbed]:
    bed = Testbed(brokers=3, settings=cluster_settings(3), deadline=5, unsynced=True)
    bed.start()
    yield bed
    bed.stop()


def machine(bed: Testbed) -> None:
    test_power_cuts.test_machine_has_started_again(Kafka(bed), bed)


def files(bed: Testbed) -> None:
    test_cluster_snapshots.test_no_two_logs_share_a_file(Replicated(Kafka(bed)), bed)


def late_follower(bed: Testbed) -> None:
    test_cluster_snapshots.test_follower_that_lags_has_the_leaders_records(Replicated(Kafka(bed)), bed)


@pytest.mark.parametrize(
    ("seed", "test"),
    [
        (believes_the_kernel, machine),
        (links_all_replicas, files),
        (looks_at_the_leader_alone, late_follower),
        (takes_followers_for_alike, late_follower),
    ],
)
def test_seeded_bug_of_a_cluster_is_found(
    seed: Callable[[Patch], None], test: Callable[[Testbed], None], three: Testbed, monkeypatch: Patch
) -> None:
    seed(monkeypatch)
    try:
        with pytest.raises((AssertionError, DeadlineExceeded)):
            test(three)
    finally:
        monkeypatch.undo()
        three.run(three.reset())
