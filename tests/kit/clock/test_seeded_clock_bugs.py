"""Bugs that a movable clock is easily written with are seeded, one at a time, and the tests of it find them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.local_cluster import LocalCluster
from ottla.broker.replicas import appends
from ottla.testing import DeadlineExceeded
from ottla.testing.clock import sessions
from ottla.testing.clock.broker_times import BrokerTimes
from ottla.testing.clock.walk import Walk
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.clock import test_brokers, test_clients, test_walk

Patch = pytest.MonkeyPatch


def sets_the_clock_to_the_target_first(patch: Patch) -> None:
    """KT-7."""
    real = Walk.to

    async def to(self: Walk, target_ms: int, *, all_jobs: bool) -> None:
        self._timeline.go_to(target_ms)
        await real(self, target_ms, all_jobs=all_jobs)

    patch.setattr(Walk, "to", to)


def has_leases_in_broker_time(patch: Patch) -> None:
    """KT-8."""
    made: list[BrokerTimes] = []
    real_init, real_open = BrokerTimes.__init__, LocalCluster._open_store

    def init(self: BrokerTimes) -> None:
        real_init(self)
        made.append(self)

    def open_store(self: LocalCluster) -> None:
        real_open(self)
        store: Any = self._store
        store._wheel = SimpleNamespace(schedule=lambda *timer: made[-1].wheels[0].schedule(*timer))

    patch.setattr(BrokerTimes, "__init__", init)
    patch.setattr(LocalCluster, "_open_store", open_store)


def ends_fetches_in_broker_time(patch: Patch) -> None:
    """KT-9."""
    real = appends.Appends.__init__

    def init(self: appends.Appends, runtime: Any, *rest: Any) -> None:
        real(self, runtime, *rest)
        self.delayed_fetch = appends.Purgatory("fetch", runtime.broker_wheel)

    patch.setattr(appends.Appends, "__init__", init)


def spares_members_for_good(patch: Patch) -> None:
    """KT-10."""
    real = sessions.set_deadline

    def set_deadline(group: Any, key: Any, deadline_ms: int) -> None:
        real(group, key, deadline_ms + 10**12)

    patch.setattr(sessions, "set_deadline", set_deadline)


def counts_the_jump_twice(patch: Patch) -> None:
    """KT-10, of a session that was renewed within the jump, or moved by two of its stops."""
    real = sessions.set_deadline

    def set_deadline(group: Any, key: Any, deadline_ms: int) -> None:
        real(group, key, deadline_ms + 8 * 86_400_000)

    patch.setattr(sessions, "set_deadline", set_deadline)


def chains() -> None:
    test_walk.test_chain_of_timers_counts_from_the_moment_of_each()


def leases() -> None:
    for three in cluster():
        test_brokers.survives_eight_days(three)


def fetches() -> None:
    for handle in broker():
        with test_clients.members(handle) as living:
            test_clients.goes_on_frozen(handle, living)


def spared() -> None:
    for handle in broker():
        test_clients.spared_member_expires(handle)


def cluster() -> Iterator[Kafka]:
    settings = {"default.replication.factor": 3, "min.insync.replicas": 2, "offsets.topic.replication.factor": 3}
    for three in opened(Testbed(brokers=3, settings=settings, deadline=5)):
        try:
            yield three
        finally:
            # Without leases they would hand over to each other for long.
            for each in three.brokers.values():
                each.kill()


def broker() -> Iterator[Kafka]:
    yield from opened(Testbed(deadline=8))


def opened(bed: Testbed) -> Iterator[Kafka]:
    bed.start()
    try:
        yield Kafka(bed)
    finally:
        bed.stop()


@pytest.mark.parametrize(
    ("bug", "found_by"),
    [
        (sets_the_clock_to_the_target_first, chains),
        (has_leases_in_broker_time, leases),
        (ends_fetches_in_broker_time, fetches),
        (spares_members_for_good, spared),
        (counts_the_jump_twice, spared),
    ],
    ids=lambda each: each.__name__,
)
def test_seeded_bug_is_found(bug: Any, found_by: Any, monkeypatch: Patch) -> None:
    """Without the bug the same passes: it is what the tests named by `found_by` run."""
    bug(monkeypatch)

    with pytest.raises((AssertionError, DeadlineExceeded)):
        found_by()
