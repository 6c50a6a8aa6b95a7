"""Levels of features: what new and old stores have, who may register, which updates are refused."""

from typing import Any

import pytest

from ottla.cluster.encoding import BROKERS, FEATURES, broker_of, features_value, registration_value
from ottla.cluster.features import (
    FeatureUpdate,
    UpgradeType,
    check_supports_finalized,
    finalize_in_new_cluster,
    update_features,
)
from ottla.cluster.image import NO_LEADER, TRANSACTION_VERSION, FinalizedFeatures, LevelRange, MetadataImage
from ottla.cluster.registration import register
from ottla.cluster.store import ABSENT, Changes, Entry, Expect, Put, Snapshot, StoreError
from ottla.cluster.updates import applied
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster.images import broker, image
from tests.cluster.test_registration import wanted

UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
LEVEL_1_ONLY = {TRANSACTION_VERSION: LevelRange(0, 1)}


def at(level: int, **fields: Any) -> MetadataImage:
    return image(features=FinalizedFeatures({TRANSACTION_VERSION: level}, 7), **fields)


def update(level: int, upgrade_type: int = UP, name: str = TRANSACTION_VERSION) -> FeatureUpdate:
    return FeatureUpdate(name, level, upgrade_type)


def test_new_cluster_has_the_highest_levels_of_its_founder() -> None:
    assert finalize_in_new_cluster() == Put(FEATURES, b'{"transaction.version":2}')
    first = register(wanted(1, features=LEVEL_1_ONLY), [], lease_id=1)
    assert Put(FEATURES, b'{"transaction.version":1}') in first.changes


def test_store_of_before_works_by_level_1() -> None:
    found = applied(MetadataImage("c", NO_LEADER), Snapshot([], 5)).image

    assert (found.transaction_version, found.features.epoch) == (1, 0)


def test_image_follows_the_level_and_its_epoch() -> None:
    empty = MetadataImage("c", NO_LEADER)
    entry = Entry(FEATURES, features_value({TRANSACTION_VERSION: 2}), 9)

    assert applied(empty, Snapshot([entry], 9)).image.features == ({TRANSACTION_VERSION: 2}, 9)
    followed = applied(empty, Changes(9, (entry,), ())).image
    assert (followed.transaction_version, followed.features.epoch) == (2, 9)
    assert applied(followed, Changes(10, (), (FEATURES,))).image.transaction_version == 1
    assert applied(followed, Snapshot([], 10)).image.transaction_version == 1


@pytest.mark.parametrize("value", [b"[]", b'{"transaction.version":"x"}', b"{"])
def test_damaged_levels_are_refused(value: bytes) -> None:
    with pytest.raises(StoreError, match="features"):
        applied(MetadataImage("c", NO_LEADER), Snapshot([Entry(FEATURES, value, 1)], 1))


def test_registration_says_what_the_broker_supports() -> None:
    info = broker(1, features=LEVEL_1_ONLY)
    stored = registration_value(info)
    of_before = stored.replace(b'"features":{"transaction.version":[0,1]},', b"")
    assert stored != of_before

    assert broker_of(Entry(f"{BROKERS}1", stored, 1)).features == LEVEL_1_ONLY
    assert broker_of(Entry(f"{BROKERS}1", of_before, 1)).features == {TRANSACTION_VERSION: LevelRange(1, 1)}


def test_broker_without_the_clusters_level_may_not_register() -> None:
    stored = Entry(FEATURES, features_value({TRANSACTION_VERSION: 2}), 3)
    others = [Entry("cluster-id", b"c", 1), stored]

    with pytest.raises(KafkaError, match=r"transaction\.version 2, this broker supports levels 0-1") as raised:
        register(wanted(2, cluster_id="c", features=LEVEL_1_ONLY), others, lease_id=1)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
    transaction = register(wanted(2, cluster_id="c"), others, lease_id=1)
    assert Expect(FEATURES, 3) in transaction.expected
    check_supports_finalized(LEVEL_1_ONLY, None)


def test_unknown_feature_of_a_later_version_keeps_a_broker_out() -> None:
    stored = Entry(FEATURES, features_value({"later.version": 1}), 3)

    with pytest.raises(KafkaError, match=r"later\.version"):
        check_supports_finalized(LEVEL_1_ONLY, stored)


@pytest.mark.parametrize(
    ("before", "after", "upgrade_type"), [(1, 2, UP), (0, 2, UP), (2, 1, DOWN), (2, 0, UNSAFE), (1, 0, DOWN)]
)
def test_level_is_raised_and_lowered(before: int, after: int, upgrade_type: int) -> None:
    transaction = update_features(at(before), [update(after, upgrade_type)])

    assert transaction.changes == (Put(FEATURES, features_value({TRANSACTION_VERSION: after})),)
    assert transaction.expected == (
        Expect(FEATURES, 7),
        *(Expect(f"{BROKERS}{node_id}", 100 + node_id) for node_id in (1, 2, 3)),
    )


def test_store_of_before_is_upgraded() -> None:
    assert update_features(image(), [update(2)]).expected[0] == Expect(FEATURES, ABSENT)


@pytest.mark.parametrize("upgrade_type", [UP, DOWN, UNSAFE])
def test_level_that_is_the_same_changes_nothing(upgrade_type: int) -> None:
    assert update_features(at(2), [update(2, upgrade_type)]).changes == ()


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (update(3), "this broker supports levels 0-2"),
        (update(-1, DOWN), "a level is not below 0"),
        (update(0), "a downgrade was not asked for"),
        (update(2, DOWN), "an upgrade was not asked for"),
        (update(2, 0), "there is no upgrade type 0"),
        (update(-1, 4), "there is no upgrade type 4"),
        (update(1, UP, "metadata.version"), "there is no such feature"),
        (update(0, UNSAFE, "metadata.version"), "there is no such feature"),
    ],
)
def test_update_is_refused_and_spoils_the_others(refused: FeatureUpdate, why: str) -> None:
    """As Kafka 4.1 answers: one error for all."""
    for updates in ([refused], [refused, update(2)], [update(2), refused]):
        with pytest.raises(KafkaError, match=why) as raised:
            update_features(at(1), updates)
        assert raised.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_level_that_a_registered_broker_lacks_is_refused() -> None:
    with pytest.raises(KafkaError, match="broker 4 supports levels 0-1"):
        update_features(at(1, others=(broker(4, features=LEVEL_1_ONLY),)), [update(2)])


def test_last_of_two_updates_of_one_feature_counts() -> None:
    transaction = update_features(at(2), [update(1, DOWN), update(0, DOWN)])

    assert transaction.changes == (Put(FEATURES, features_value({TRANSACTION_VERSION: 0})),)
