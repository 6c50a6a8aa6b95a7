"""Transactions are answered and stored as Apache Kafka does, or differently for a stated reason."""

from pathlib import Path

import pytest

from ottla import BrokerThread
from ottla.broker.coordinators import transaction_coordinator
from tests.differential.brokers import SHARED
from tests.differential.transcripts import INTENDED, Transcripts, differing, recorded, transcripts

pytestmark = pytest.mark.timeout(120)


def ours(data_dir: Path) -> Transcripts:
    with BrokerThread(data_dir=data_dir, settings=SHARED, node_id=1) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        return transcripts((host, int(port)))


@pytest.mark.parametrize("level", [1, 2])
def test_scripts_of_transactions_are_answered_as_by_kafka(
    level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_coordinator, "TRANSACTION_VERSION", level)

    assert set(differing(ours(tmp_path / "data"), recorded(level))) == INTENDED
