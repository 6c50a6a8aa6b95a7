"""What the judge wants of the replicas of a compacted partition with transactions: only committed records count."""

import pytest

from ottla.storage.log import Log
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.decided import DecidedLog
from tests.simulation.cluster.replicas import Committed
from tests.simulation.judge import Judge
from tests.simulation.trace import Trace
from tests.storage.support import apply_compaction, new_log
from tests.storage.test_transactional_compaction import CONFIG, NOW, compact, plan_compaction
from tests.storage.transactional import ABORT, COMMIT, end, write

KEY = b"k"


@pytest.fixture
def replica() -> DecidedLog:
    return DecidedLog(Judge(Trace(lambda: 0)), Committed("t-0"), new_log(FakeDisk(), CONFIG), "broker")


def another(replica: DecidedLog, log: Log | None = None) -> DecidedLog:
    """Of the same partition, on another broker."""
    return DecidedLog(replica._judge, replica._committed, log or new_log(FakeDisk(), CONFIG), "another broker")


def copy(log: Log, source: DecidedLog, offset: int) -> None:
    batches = source.log.read(offset, 1 << 20, upper_bound=source.log.log_end_offset, wait=True).records
    log.append_as_follower(batches, now_wall_ms=NOW)
    log.write_pending(now_wall_ms=NOW)


def expire_marker(replica: DecidedLog) -> None:
    """That of an aborted transaction, at 1: the records go first, then the marker gets its horizon, which passes."""
    end(replica.log, producer=7, commit=ABORT)
    for passed_ms in (0, 0, 2_000):
        assert replica._committed.expired_markers == set()
        write(replica.log, "b", producer=7, key="k")
        end(replica.log, producer=7, commit=COMMIT)
        replica.look()
        replica.commit(replica.log.log_end_offset, 0)
        clean(replica, NOW + passed_ms)
    assert 1 in {marker.offset for marker in replica._committed.expired_markers}


def violated(replica: DecidedLog) -> list[str]:
    return [violation.partition(":")[0] for violation in replica._judge.violations]


def clean(replica: DecidedLog, now: int = NOW) -> None:
    log = replica.log
    log.roll()
    plan = plan_compaction(log, now_wall_ms=now, upper_bound=log.last_stable_offset(log.log_end_offset))
    assert plan is not None
    assert apply_compaction(log, compact(plan), now_wall_ms=now)
    replica.look()


def test_record_counts_when_its_marker_is_committed(replica: DecidedLog) -> None:
    write(replica.log, "a", producer=7, key="k")
    end(replica.log, producer=7, commit=COMMIT)
    replica.look()

    replica.commit(1, 0)
    assert replica._committed.latest == {}
    replica.commit(2, 0)
    assert replica._committed.latest[KEY].offset == 0


def test_aborted_record_is_none(replica: DecidedLog) -> None:
    write(replica.log, "a", producer=7, key="k")
    end(replica.log, producer=7, commit=ABORT)
    replica.look()

    replica.commit(2, 0)

    assert replica._committed.latest == {}
    assert replica.has_committed()


def test_record_counts_at_its_own_offset(replica: DecidedLog) -> None:
    """Not at that of its marker: the transaction that ended first has the later record."""
    write(replica.log, "a", producer=7, key="k")
    write(replica.log, "b", producer=8, key="k")
    end(replica.log, producer=8, commit=COMMIT)
    end(replica.log, producer=7, commit=COMMIT)
    replica.look()

    replica.commit(4, 0)

    assert replica._committed.latest[KEY].offset == 1


def test_compaction_of_decided_records_is_no_loss(replica: DecidedLog) -> None:
    for value, commit in (("a", COMMIT), ("b", COMMIT), ("c", ABORT)):
        write(replica.log, value, producer=7, key="k")
        end(replica.log, producer=7, commit=commit)
    replica.look()
    replica.commit(6, 0)

    clean(replica)

    assert violated(replica) == []
    assert replica.has_committed()


def test_lost_committed_record_is_found(replica: DecidedLog) -> None:
    write(replica.log, "a", producer=7, key="k")
    end(replica.log, producer=7, commit=COMMIT)
    replica.look()
    replica.commit(2, 0)

    replica.log.truncate_to(1)
    replica.look()

    assert violated(replica) == ["I-5"]


def test_uncommitted_marker_of_an_earlier_leader_may_be_cut(replica: DecidedLog) -> None:
    """Another leader has written a record where this replica has a marker."""
    write(replica.log, "a", producer=7, key="k")
    end(replica.log, producer=7, commit=COMMIT)
    replica.look()
    replica.commit(1, 0)
    replica._committed.end_offset, replica._committed.end_record_epoch = 2, 1

    replica.log.truncate_to(1)
    replica.look()

    assert violated(replica) == []


def test_who_was_away_until_a_marker_expired_is_excused(replica: DecidedLog) -> None:
    """Its copy of the aborted record is committed by the next marker of the producer."""
    away = another(replica)
    for each in (replica, away):
        write(each.log, "a", producer=7, key="other")
        each.look()
    expire_marker(replica)

    copy(away.log, replica, 2)
    away.look()

    assert replica._committed.undecided == {0}
    assert violated(away) == []
    assert away.has_committed()
    assert replica.has_committed()


@pytest.mark.parametrize("undecided", [True, False])
def test_key_that_an_undecided_record_has_taken_does_not_count(replica: DecidedLog, undecided: bool) -> None:
    """The replica takes it for committed, and removes the one before it, which was the last of the key."""
    write(replica.log, "a", producer=8, key="k")
    end(replica.log, producer=8, commit=COMMIT)
    replica.look()
    replica.commit(2, 0)
    if undecided:
        replica._committed.undecided.add(2)

    write(replica.log, "b", producer=7, key="k")
    end(replica.log, producer=7, commit=COMMIT)
    clean(replica)

    assert violated(replica) == ([] if undecided else ["I-5"])
    assert replica.has_committed() is undecided
    assert replica._committed.came_back == ({KEY} if undecided else set())


def test_who_has_had_the_marker_is_not_excused(replica: DecidedLog) -> None:
    """Also in another life of its broker: it has removed the marker itself, before the record."""
    away = another(replica)
    for each in (replica, away):
        write(each.log, "a", producer=7, key="other")
        each.look()
    end(away.log, producer=7, commit=ABORT)
    away.look()
    expire_marker(replica)
    without = new_log(FakeDisk(), CONFIG)
    write(without, "a", producer=7, key="other")
    copy(without, replica, 2)

    another(replica, without).look()

    assert replica._committed.undecided == set()


def test_marker_that_was_cut_was_not_had(replica: DecidedLog) -> None:
    away = another(replica)
    for each in (replica, away):
        write(each.log, "a", producer=7, key="other")
        each.look()
    end(away.log, producer=7, commit=ABORT)
    away.look()
    away.log.truncate_to(1)
    away.look()
    expire_marker(replica)

    assert replica._committed.undecided == set()
    copy(away.log, replica, 2)
    away.look()

    assert replica._committed.undecided == {0}
