"""What the end of a compacted topic may hold."""

import pytest

from ottla.protocol.records.record import Record
from tests.simulation.cluster.keyed import KeyedLedger


def log(*records):
    return [Record(timestamp=0, key=key.encode(), value=value and value.encode()) for key, value in records]


@pytest.fixture
def ledger():
    """Under "a", 1 and then 2 were acknowledged."""
    ledger = KeyedLedger()
    for value in ("1", "2"):
        ledger.send("a", value)
        ledger.acknowledge("a", value)
    return ledger


def test_the_last_acknowledged_value_must_be_there(ledger):
    assert ledger.wrong(log(("a", "1"), ("a", "2"))) == []
    assert len(ledger.wrong(log(("a", "1")))) == len(ledger.wrong([])) == 1


def test_a_record_never_answered_may_be_the_last(ledger):
    ledger.send("a", "3")
    assert ledger.wrong(log(("a", "3"))) == ledger.wrong(log(("a", "2"))) == []
    assert len(ledger.wrong(log(("a", "1")))) == 1


def test_a_deleted_key_has_a_tombstone_or_nothing(ledger):
    ledger.send("a", None)
    ledger.acknowledge("a", None)
    assert ledger.wrong(log(("a", None))) == ledger.wrong([]) == []
    assert len(ledger.wrong(log(("a", "2")))) == 1
