"""Transactions are answered and stored as Apache Kafka does, or differently for a stated reason."""

from pathlib import Path

import pytest

from ottla import BrokerThread
from ottla.cluster.features import UpgradeType
from ottla.cluster.image import SUPPORTED_FEATURES, TRANSACTION_VERSION
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.differential.brokers import SHARED
from tests.differential.connection import Address, Connection
from tests.differential.transcripts import INTENDED, INTENDED_AT_LEVEL_2, Transcripts, differing, recorded, transcripts

pytestmark = pytest.mark.timeout(120)


def ours(data_dir: Path, level: int) -> Transcripts:
    with BrokerThread(data_dir=data_dir, settings=SHARED, node_id=1) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        address = (host, int(port))
        if level < SUPPORTED_FEATURES[TRANSACTION_VERSION].highest:
            lower_transaction_version(address, level)
        return transcripts(address)


def lower_transaction_version(address: Address, level: int) -> None:
    update = FeatureUpdateKey(
        feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=int(UpgradeType.SAFE_DOWNGRADE)
    )
    with Connection(address) as connection:
        response = connection.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert response.error_code == 0


@pytest.mark.parametrize("level", [1, 2])
def test_scripts_of_transactions_are_answered_as_by_kafka(level: int, tmp_path: Path) -> None:
    intended = INTENDED | (INTENDED_AT_LEVEL_2 if level == 2 else set())
    assert set(differing(ours(tmp_path / "data", level), recorded(level))) == intended
