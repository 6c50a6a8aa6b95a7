"""What the judge wants of the replicas of a partition: one log, as far as it is not deleted."""

import pytest

from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.replicas import Committed, TrackedLog
from tests.simulation.judge import Judge
from tests.simulation.trace import Trace
from tests.storage.support import NOW, append, batch, new_log


class Replicas:
    """Of one partition. Records are a value and the leader epoch in which it was written."""

    def __init__(self):
        self.judge = Judge(Trace(lambda: 0))
        self.committed = Committed("t-0")

    def add(self, *records, owner="broker", is_rotten=False):
        log = new_log(FakeDisk())
        write(log, *records)
        replica = TrackedLog(self.judge, self.committed, log, owner, lambda: is_rotten)
        replica.look()
        return replica

    @property
    def violated(self):
        return [violation.partition(":")[0] for violation in self.judge.violations]


@pytest.fixture
def replicas():
    return Replicas()


def write(log, *records):
    for value, leader_epoch in records:
        append(log, batch(value), leader_epoch=leader_epoch)


def delete(replica, offset):
    replica.log.delete_records_before(offset)
    replica.look()


def restart(log, offset):
    """As a follower does."""
    log.truncate_fully_and_start_at(offset)
    log.epochs.clear()


def leader_that_has_deleted(replicas, offset):
    leader = replicas.add(("a", 0), ("b", 2), ("c", 2), owner="leader")
    leader.commit(3, 2)
    delete(leader, offset)
    return leader


@pytest.mark.parametrize(("spared_in", "violated"), [(None, ["I-5"]), (0, []), (1, ["I-5"])])
def test_a_follower_of_a_deposed_leader_may_cut(replicas, spared_in, violated):
    """What a later leader has committed. A replica that is counted on may not, nor one that follows that leader."""
    leader, follower = (replicas.add(("a", 0), ("b", 0), owner=owner) for owner in ("leader", "follower"))
    leader.commit(1, 0)
    leader.commit(2, 1)
    follower.log.truncate_to(1)
    follower.look(spared_in)

    assert replicas.violated == violated


def test_what_the_deposed_leader_had_committed_is_not_cut(replicas):
    leader, follower = (replicas.add(("a", 0), ("b", 0), owner=owner) for owner in ("leader", "follower"))
    leader.commit(2, 0)
    follower.log.truncate_to(1)
    follower.look(0)

    assert replicas.violated == ["I-5"]


def test_other_records_at_an_offset_that_is_committed_are_found(replicas):
    leader_that_has_deleted(replicas, 0)
    replicas.add(("a", 0), ("other", 0), ("c", 2))
    assert replicas.violated == ["I-2"]


def test_records_below_a_log_start_that_rose_are_not_compared(replicas):
    leader_that_has_deleted(replicas, 2)
    follower = replicas.add(("a", 0), ("other", 0))

    write(follower.log, ("c", 2))
    delete(follower, 2)

    assert follower.has_committed()
    assert replicas.violated == []


def test_deleted_records_that_are_back_are_not_compared(replicas):
    leader_that_has_deleted(replicas, 2)

    restarted = replicas.add(("a", 0), ("other", 0), ("c", 2))

    assert restarted.has_committed()
    assert replicas.violated == []


@pytest.mark.parametrize(
    ("followers", "is_restarted"),
    [
        pytest.param([], True, id="that had less"),
        pytest.param([("other", 0)], True, id="that had as much"),
        pytest.param([], False, id="none"),
    ],
)
def test_sequences_stand_once_but_after_restarts_of_followers(replicas, followers, *, is_restarted):
    """One that began again behind what is deleted knows of no producer, as Kafka's do, and may lead."""
    leader = replicas.add(owner="leader")
    sent = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    append(leader.log, batch("a", **sent), leader_epoch=1)
    leader.look()
    leader.commit(1, 1)
    delete(leader, 1)
    if is_restarted:
        follower = replicas.add(*followers, owner="follower")
        restart(follower.log, 1)
        follower.look()

    leader.log.append_as_follower(batch("a", base_offset=1, leader_epoch=1, **sent), now_wall_ms=NOW)
    leader.log.write_pending(now_wall_ms=NOW)
    leader.look()

    assert replicas.violated == ([] if is_restarted else ["I-10"])


def test_sequences_of_batches_that_are_committed_are_kept(replicas):
    leader = replicas.add(("a", 0), owner="leader")
    for first in (0, 1):
        append(leader.log, batch("b", producer_id=1, producer_epoch=0, base_sequence=first), leader_epoch=0)
    leader.look()

    leader.commit(2, 0)

    assert replicas.committed.sequences == {(1, 0, 0)}


def test_epochs_that_are_forgotten_with_no_deletion_are_found(replicas):
    """Others may have deleted records up to there."""
    leader_that_has_deleted(replicas, 2)
    follower = replicas.add(("a", 0), ("b", 2))
    follower.log.epochs.truncate_from_start(1)

    write(follower.log, ("c", 2))
    restarted = TrackedLog(replicas.judge, replicas.committed, follower.log, "broker")
    restarted.look()

    assert "I-7" in replicas.violated


def test_what_a_leader_cannot_read_that_commits_it_others_have(replicas):
    """Its disk has rotted."""
    first = replicas.add(("a", 0), ("b", 0), owner="first leader")
    first.commit(2, 0)
    assert not first.lacks_committed()

    replicas.add(is_rotten=True, owner="next leader").commit(3, 1)

    assert (replicas.committed.end_offset, replicas.committed.unread_end_offset) == (2, 3)
    assert first.lacks_committed()
    write(first.log, ("c", 1))
    first.look()
    assert not first.lacks_committed()
    assert replicas.violated == []
