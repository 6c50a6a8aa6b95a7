"""ApiVersions and UpdateFeatures about `transaction.version`, as Kafka 4.1 answers."""

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.asking import Asking, running
from tests.broker.clusters import ask, running_cluster, until

NAME = "transaction.version"
UP, DOWN = 1, 2
REFUSED = ErrorCode.INVALID_UPDATE_VERSION
VERSIONS = ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def features(response: Any) -> tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]:
    """Supported and finalized, each with its lowest and highest level."""
    return (
        [(each.name, each.min_version, each.max_version) for each in response.supported_features],
        [(each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features],
    )


def update(level: int, upgrade_type: int = UP, *, name: str = NAME, validate_only: bool = False) -> Any:
    key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)


async def level_of(broker: Asking) -> tuple[int, int]:
    """And the epoch."""
    answer = await broker.ask(VERSIONS, 4)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels.get(NAME, 0), answer.finalized_features_epoch


async def test_new_broker_offers_level_2(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        oldest, third, fourth = [await broker.ask(VERSIONS, version) for version in (2, 3, 4)]

    assert features(oldest) == ([], [])
    # Clients of version 3 do not understand a feature that is supported from level 0 on (KIP-1022).
    assert features(third) == ([], [(NAME, 2, 2)])
    assert features(fourth) == ([(NAME, 0, 2)], [(NAME, 2, 2)])
    assert third.finalized_features_epoch == fourth.finalized_features_epoch > 0


async def test_level_is_changed_with_a_greater_epoch_and_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        _, first = await level_of(broker)
        response = await broker.ask(update(1, DOWN), 2)
        lowered = await level_of(broker)
        await broker.ask(update(0, DOWN), 2)
        without = features(await broker.ask(VERSIONS, 4))
        await broker.ask(update(2), 2)
        raised = await level_of(broker)
    async with running(tmp_path) as broker:
        assert await level_of(broker) == raised

    assert (response.error_code, lowered[0], raised[0]) == (0, 1, 2)
    assert first < lowered[1] < raised[1]
    assert without == ([(NAME, 0, 2)], [])


async def test_validation_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        before = await level_of(broker)
        valid = await broker.ask(update(1, DOWN, validate_only=True), 2)
        invalid = await broker.ask(update(3, validate_only=True), 2)

        assert await level_of(broker) == before
    assert (valid.error_code, invalid.error_code) == (0, REFUSED)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_refused_update_is_one_error_of_the_whole(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        response = await broker.ask(update(1, name="metadata.version"), version)
        done = await broker.ask(update(2), version)

    assert (response.error_code, response.results) == (REFUSED, [])
    assert "metadata.version cannot be set to 1: there is no such feature" in response.error_message
    assert [(each.feature, each.error_code) for each in done.results] == ([(NAME, 0)] if version < 2 else [])


async def test_version_0_lowers_no_level(tmp_path: Path) -> None:
    """As in Kafka 4.1, which no longer looks at its `allow_downgrade`."""
    key = FeatureUpdateKey(feature=NAME, max_version_level=1, allow_downgrade=True)
    async with running(tmp_path) as broker:
        response = await broker.ask(UpdateFeaturesRequest(feature_updates=[key]), 0)

    assert response.error_code == REFUSED


async def test_all_brokers_say_the_same_level_and_epoch(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        one, other = cluster.brokers.values()
        await ask(one, update(1, DOWN), 2)
        await until(lambda: other.image.features == one.image.features)
        seen = [await ask(each, VERSIONS, 4) for each in (one, other)]

    assert features(seen[0]) == features(seen[1]) == ([(NAME, 0, 2)], [(NAME, 1, 1)])
    assert seen[0].finalized_features_epoch == seen[1].finalized_features_epoch
