"""What the judge wants of the replicas of a compacted partition with transactions: only committed records count."""

import pytest

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


def violated(replica: DecidedLog) -> list[str]:
    return [violation.partition(":")[0] for violation in replica._judge.violations]


def clean(replica: DecidedLog) -> None:
    log = replica.log
    log.roll()
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.last_stable_offset(log.log_end_offset))
    assert plan is not None
    assert apply_compaction(log, compact(plan), now_wall_ms=NOW)
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
