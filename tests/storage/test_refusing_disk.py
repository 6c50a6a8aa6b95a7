"""Random walks on a disk that refuses lose nothing, and seeded bugs are found by them (docs/seeded-bugs.md)."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.broker.replicas import follower_log
from ottla.storage import compaction
from ottla.storage.files import AnyPath
from ottla.storage.segment import Segment
from ottla.storage.segment_swap import SegmentSwaps
from tests.fakes.disk import FakeDisk
from tests.storage.refusing_walk import RefusingWalk

# `make nightly` walks more.
WALKS = int(os.environ.get("OTTLA_WALKS", "12"))
# Any change of the storage room makes another story of a seed: then the next ones have to do.
OTHER_SEEDS = 300

Patch = Any


def keeps_the_high_watermark_of_a_broken_truncation(patch: Patch) -> None:
    def restart(partition: Any, offset: int) -> None:
        partition.log.truncate_fully_and_start_at(offset)
        partition.log.epochs.clear()
        partition.log_truncated()

    patch.setattr(follower_log, "restart", restart)


def abandons_the_last_swap_too_late(patch: Patch) -> None:
    """Files of the next compaction, which has the same names for them, are removed with those of the last one."""
    begin, abandon = SegmentSwaps.begin, SegmentSwaps.abandon

    def late(self: SegmentSwaps, groups: Any, **named: Any) -> Any:
        abandon(self)
        return begin(self, groups, **named)

    def rename(self: Segment, suffix: str) -> None:
        for path in self.existing_paths():
            kind = "." + path.name.split(".")[1]
            self._files.rename(path, path.with_name(path.name.split(".")[0] + kind + suffix))
        self._suffix = suffix

    plan = compaction.plan_compaction

    def hasty(log: Any, **named: Any) -> Any:
        patch.setattr(SegmentSwaps, "abandon", lambda _: None)
        try:
            return plan(log, **named)
        finally:
            patch.setattr(SegmentSwaps, "abandon", abandon)

    patch.setattr(compaction, "plan_compaction", hasty)
    patch.setattr(SegmentSwaps, "begin", late)
    patch.setattr(Segment, "rename", rename)


def reads_to_undo_a_refused_write(patch: Patch) -> None:
    """The disk may refuse that too, before the log is what it was."""
    forget = Segment.forget_aborted_from

    def read_first(self: Segment, offset: int) -> None:
        _ = self.aborted
        forget(self, offset)

    patch.setattr(Segment, "forget_aborted_from", read_first)


def takes_files_for_gone(patch: Patch) -> None:
    """Those of which the disk does not say whether they are there."""
    exists = FakeDisk.exists

    def exists_for_sure(self: FakeDisk, path: AnyPath) -> bool:
        with suppress(OSError):
            return exists(self, path)
        return False

    patch.setattr(FakeDisk, "exists", exists_for_sure)


SEEDED_WALK_BUGS: dict[str, tuple[Callable[[Patch], None], int]] = {
    "keeps the high watermark of a broken truncation": (keeps_the_high_watermark_of_a_broken_truncation, 2),
    "abandons the last swap too late": (abandons_the_last_swap_too_late, 37),
    "reads to undo a refused write": (reads_to_undo_a_refused_write, 3),
    "takes files for gone": (takes_files_for_gone, 301),
}
"""And a seed that finds it."""


@pytest.mark.parametrize("seed", range(WALKS))
def test_walk_on_a_refusing_disk_loses_no_record(seed: int) -> None:
    RefusingWalk(seed).run()


@pytest.mark.parametrize(("seed_bug", "seed"), SEEDED_WALK_BUGS.values(), ids=SEEDED_WALK_BUGS.keys())
def test_a_seeded_bug_is_found(monkeypatch: Patch, seed_bug: Callable[[Patch], None], seed: int) -> None:
    RefusingWalk(seed).run()
    seed_bug(monkeypatch)
    assert any(is_found_by(each) for each in (seed, *range(OTHER_SEEDS)))


def is_found_by(seed: int) -> bool:
    try:
        RefusingWalk(seed).run()
    except AssertionError:
        return True
    return False
