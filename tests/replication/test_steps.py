"""The steps of the replication room touch no file: what they want done to a log, they return as effects."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.replication.fetcher import Fetcher
from ottla.replication.fetcher_manager import FetcherManager
from ottla.replication.follower_session import FollowerSession
from ottla.replication.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.replication.replica_follower import FollowerState, ReplicaFollower
from ottla.replication.replica_reads import ReplicaReads
from tests.fakes.disk import FakeDisk, FakeFile
from tests.replication.broker import Kinds
from tests.replication.walk import Walk

DECIDING = (
    FetchSessionCache,
    Fetcher,
    FetcherManager,
    FollowerSession,
    Leadership,
    Partition,
    ReplicaFollower,
    ReplicaReads,
)


class FileTouched(Exception):
    pass


class Steps:
    """Which calls of deciding classes are under way, and how often each was made."""

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self.count: dict[str, int] = {}

    def step(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            name = method.__qualname__
            self.count[name] = self.count.get(name, 0) + 1
            self.under_way.append(name)
            try:
                return method(*arguments, **named)
            finally:
                self.under_way.pop()

        return counted

    def file_call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def refusing(*arguments: Any, **named: Any) -> Any:
            if self.under_way:
                raise FileTouched(f"{method.__qualname__} within {self.under_way[0]}")
            return method(*arguments, **named)

        return refusing


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    for kinds, wrap in ((DECIDING, steps.step), ((FakeDisk, FakeFile), steps.file_call)):
        for kind in kinds:
            for name, method in list(vars(kind).items()):
                if isinstance(method, FunctionType) and not name.startswith("_"):
                    monkeypatch.setattr(kind, name, wrap(method))
    return steps


def test_no_step_of_replication_touches_a_file(steps: Steps) -> None:
    for seed in range(15):
        Walk(seed).run()

    for step in (
        "Partition.append",
        "Partition.apply_state",
        "Partition.note_follower_fetch",
        "Fetcher.handle_response",
        "Fetcher.performed",
        "FetcherManager.add_partition",
        "ReplicaFollower.truncation_point",
    ):
        assert steps.count[step] > 10, step


class TruncatesInItsStep(ReplicaFollower):
    def _truncate(self, offset: int, state_after: FollowerState) -> Any:
        self.partition.log.truncate_to(offset)
        return super()._truncate(offset, state_after)


@pytest.mark.usefixtures("steps")
def test_truncation_within_a_step_is_found() -> None:
    def walks() -> None:
        for seed in range(15):
            Walk(seed, Kinds(follower=TruncatesInItsStep)).run()

    with pytest.raises(FileTouched):
        walks()
