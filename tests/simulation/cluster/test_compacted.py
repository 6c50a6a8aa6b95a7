"""What the judge wants of the replicas of a compacted partition, computed from the keys."""

import pytest

from ottla.storage.compaction import compact, plan_compaction
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.compacted import CompactedLog
from tests.simulation.cluster.replicas import Committed
from tests.simulation.judge import Judge
from tests.simulation.trace import Trace
from tests.storage.support import NOW, append, apply_compaction, keyed, new_log

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01, delete_retention_ms=1_000)


class Replicas:
    """Of one partition."""

    def __init__(self):
        self.judge = Judge(Trace(lambda: 0))
        self.committed = Committed("t-0")

    def add(self, *batches, leader_epoch=0):
        log = new_log(FakeDisk(), CONFIG)
        for batch in batches:
            append(log, batch, leader_epoch=leader_epoch)
        replica = CompactedLog(self.judge, self.committed, log, "broker")
        replica.look()
        return replica

    @property
    def violated(self):
        return [violation.partition(":")[0] for violation in self.judge.violations]


@pytest.fixture
def replicas():
    return Replicas()


def clean(replica, now_ms=NOW):
    replica.log.roll()
    plan = plan_compaction(replica.log, now_wall_ms=now_ms, upper_bound=replica.log.log_end_offset)
    assert apply_compaction(replica.log, compact(plan), now_wall_ms=now_ms)
    replica.look()


@pytest.mark.parametrize("has_expired", [True, False])
def test_who_was_away_until_a_tombstone_expired_is_excused(replicas, has_expired):
    first = keyed(("a", "1"), ("b", "1"))
    leader, away = replicas.add(first, keyed(("a", None))), replicas.add(first)
    leader.commit(3, 0)
    clean(leader)
    append(leader.log, keyed(("b", "2")))
    leader.look()
    leader.commit(4, 0)
    clean(leader, NOW + (2_000 if has_expired else 0))
    assert leader.has_committed()

    newer = leader.log.read(3, 1 << 20, upper_bound=4).records
    away.log.append_as_follower(bytearray(newer), now_wall_ms=NOW)
    away.log.write_pending(now_wall_ms=NOW)
    away.look()

    assert away.has_committed() is has_expired
    assert replicas.committed.came_back == ({b"a"} if has_expired else set())


def test_who_had_a_tombstone_must_not_show_what_it_deleted(replicas):
    leader, follower = (replicas.add(keyed(("a", "1")), keyed(("a", None))) for _ in range(2))
    leader.commit(2, 0)
    replicas.committed.expired.add((b"a", leader._records[b"a"][-1]))

    del follower._records[b"a"][-1]

    assert not follower.has_committed()


def test_another_leaders_record_of_the_key_may_be_cut(replicas):
    """The same key at the same offset, never committed."""
    follower = replicas.add(keyed(("a", "old")))
    replicas.add(keyed(("a", "new")), leader_epoch=1).commit(1, 1)

    follower.log.truncate_to(0)
    follower.look()

    assert replicas.violated == []


def test_another_leaders_record_of_the_key_is_not_the_committed(replicas):
    follower = replicas.add(keyed(("a", "1")), keyed(("a", "old")))
    replicas.add(keyed(("a", "1")), leader_epoch=1).commit(1, 1)

    assert not follower.has_committed()


def test_a_committed_record_that_is_cut_is_a_violation(replicas):
    leader = replicas.add(keyed(("a", "1")), keyed(("b", "1")))
    leader.commit(2, 0)

    leader.log.truncate_to(1)
    leader.look()

    assert replicas.violated == ["I-5"]


def test_compaction_may_take_what_a_later_record_replaces(replicas):
    leader = replicas.add(keyed(("a", "1"), ("b", "1")), keyed(("a", "2")))
    leader.commit(3, 0)

    clean(leader)

    assert leader.has_committed()
    assert replicas.violated == []


def test_a_tombstone_may_go_when_its_time_is_over(replicas):
    leader = replicas.add(keyed(("a", "1"), ("b", "1")), keyed(("a", None)))
    leader.commit(3, 0)

    clean(leader)
    append(leader.log, keyed(("b", "2")))
    leader.look()
    leader.commit(4, 0)
    clean(leader, NOW + 2_000)

    assert b"a" not in leader._records
    assert replicas.violated == []


def test_a_tombstone_that_goes_before_its_record_is_a_violation(replicas):
    replicas.add(keyed(("a", "1")), keyed(("a", None))).commit(2, 0)
    follower = replicas.add(keyed(("a", "1")), keyed(("b", "1")))

    assert not follower.has_committed()


@pytest.mark.parametrize("had_it", [False, True])
def test_only_who_had_the_last_tombstone_must_not_cut_it(replicas, had_it):
    """No record of its key stands before it, so a log without it could be one from which it has expired."""
    leader, follower = (replicas.add(keyed(("a", "1"))) for _ in range(2))
    tombstone, other = (("b", None), 2), (("c", "old"), 1)
    for replica, (last, epoch) in ((leader, tombstone), (follower, tombstone if had_it else other)):
        append(replica.log, keyed(last), leader_epoch=epoch)
        replica.look()
    leader.commit(2, 2)

    follower.log.truncate_to(1)
    follower.look()

    assert replicas.violated == (["I-5"] if had_it else [])
