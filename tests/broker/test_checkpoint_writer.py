"""Checkpoints of recovery points where the disk fails: what they say must never be too high."""

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.upkeep.checkpoint_writer import RecoveryCheckpoints
from ottla.storage.checkpoints import RECOVERY_POINTS
from ottla.storage.log_directory import LogDirectory
from tests.broker.wire import RecordingLog
from tests.fakes.disk import FakeDisk

DATA = Path("/data")
FULL = OSError(errno.ENOSPC, "full")
NO_DESCRIPTOR = OSError(errno.EMFILE, "no descriptor")


class World:
    def __init__(self) -> None:
        self.disk, self.log, self.done = FakeDisk(), RecordingLog(), 0
        self._offloaded: list[tuple[Callable[[], None], Callable[[], None]]] = []
        runtime = SimpleNamespace(log=self.log, guard=lambda call: call(), offload=self._offload)
        self.directory = LogDirectory.open(
            DATA,
            node_id=1,
            cluster_id=None,
            new_id=lambda: "MkU3OEVBNTcwNTJENDM2Qk",
            config_of=cast("Any", None),
            now_wall_ms=0,
            files=self.disk,
        )
        self.checkpoints = RecoveryCheckpoints(cast("Any", runtime), self.directory, dict)
        self.checkpoints.recovery_points_rose()
        self.work()
        assert self.is_there

    def _offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._offloaded.append((work, done))

    def work(self) -> None:
        while self._offloaded:
            work, done = self._offloaded.pop(0)
            work()
            done()

    @property
    def is_there(self) -> bool:
        return self.disk.exists(DATA / RECOVERY_POINTS)

    def fell(self) -> None:
        def count() -> None:
            self.done += 1

        self.checkpoints.recovery_points_fell(count)
        self.work()


@pytest.fixture
def world() -> World:
    return World()


def test_a_checkpoint_that_cannot_be_written_is_removed(world: World) -> None:
    world.disk.fail("writev", FULL)

    world.fell()

    assert (world.is_there, world.done, world.checkpoints.has_failed) == (False, 1, True)


def test_no_follower_goes_on_where_it_can_be_neither(world: World) -> None:
    """Until it is written, or gone for good."""
    for _ in range(2):
        world.disk.fail("writev", FULL)
        world.disk.fail("sync_directory", NO_DESCRIPTOR)
    world.fell()
    assert world.done == 0

    world.checkpoints.retry()
    world.work()
    assert world.done == 0

    world.checkpoints.retry()
    world.work()
    assert (world.is_there, world.done, world.checkpoints.has_failed) == (True, 1, False)
    world.checkpoints.retry()
    world.work()
    assert world.done == 1


def test_who_waits_for_log_starts_goes_on_after_a_failure_too(world: World) -> None:
    done: list[str] = []
    world.disk.fail("writev", FULL)

    world.checkpoints.log_starts_rose(lambda: done.append("deleted"))
    world.work()

    assert done == ["deleted"]
    assert world.is_there


def test_refused_log_starts_are_not_remembered_each(world: World) -> None:
    """The disk may be full for days."""
    for _ in range(100):
        world.disk.fail("writev", FULL)
        world.checkpoints.log_starts_rose()
        world.work()

    assert len(world.directory._log_starts._lines) == 1
    world.checkpoints.log_starts_rose()
    world.work()
    assert not world.checkpoints.has_failed


def test_checkpoint_that_a_bug_kept_back_counts_as_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, and no follower goes on before."""
    monkeypatch.setattr(world.checkpoints._recovery_points, "_make", lambda: SimpleNamespace(write=lambda: 1 // 0))
    monkeypatch.setattr(world.checkpoints._recovery_points, "_withdraw", lambda: 1 // 0)
    world.fell()
    assert (world.done, world.checkpoints.has_failed) == (0, True)
    monkeypatch.undo()

    world.checkpoints.retry()
    world.work()

    assert (world.done, world.checkpoints.has_failed) == (1, False)
