"""The model of committed offsets, deletions included."""

import pytest

from tests.simulation.offsets import NONE_COMMITTED, OffsetLedger

PARTITION = ("t", 0)


@pytest.fixture
def ledger():
    """5 was committed, then deleted."""
    ledger = OffsetLedger()
    ledger.acknowledge(ledger.begin(PARTITION, 5, 10), 20)
    ledger.acknowledge(ledger.begin(PARTITION, NONE_COMMITTED, 30), 40)
    return ledger


def test_deleted_offset_is_not_read_again(ledger):
    assert ledger.judge_read(PARTITION, NONE_COMMITTED, 50) is None
    assert "acknowledged" in ledger.judge_read(PARTITION, 5, 50)


def test_offset_committed_after_a_deletion_is_read(ledger):
    ledger.acknowledge(ledger.begin(PARTITION, 6, 50), 60)
    assert ledger.judge_read(PARTITION, 6, 70) is None
    assert "acknowledged" in ledger.judge_read(PARTITION, NONE_COMMITTED, 70)


def test_deletion_without_an_answer_may_be_done_or_not(ledger):
    ledger.acknowledge(ledger.begin(PARTITION, 6, 50), 60)
    ledger.begin(PARTITION, NONE_COMMITTED, 70)
    assert ledger.judge_read(PARTITION, 6, 80) is None
    assert ledger.judge_read(PARTITION, NONE_COMMITTED, 80) is None


def test_refused_commit_is_never_read(ledger):
    ledger.refuse(PARTITION, ledger.begin(PARTITION, 7, 50))
    assert "never written" in ledger.judge_read(PARTITION, 7, 60)


def test_after_a_loss_of_power_anything_earlier_may_be_read(ledger):
    ledger.history_may_be_cut()
    assert ledger.judge_read(PARTITION, 5, 50) is None
    assert ledger.judge_read(PARTITION, NONE_COMMITTED, 50) is None
