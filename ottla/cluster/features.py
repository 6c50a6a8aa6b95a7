"""Features of the cluster: by which levels brokers and clients work, and how they change (§13.8, KIP-584). Pure.

A broker registers with the levels that it supports. The first one finalizes its highest ones; from then on only an
administrator changes a level, to one that all registered brokers support, and a broker that does not support it is not
registered. So a cluster whose brokers are of several versions works by the rules that all of them know.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.cluster.encoding import BROKERS, FEATURES, features_of, features_value
from ottla.cluster.image import FINALIZED_BEFORE, SUPPORTED_FEATURES, LevelRange, MetadataImage
from ottla.cluster.store import ABSENT, Entry, Expect, Put, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError, error_for

_WITHOUT = LevelRange(0, 0)


class UpgradeType(IntEnum):
    """Which change of a level is meant. Lowering the features there are loses nothing: both ways are one."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int
    """As a client has sent it."""


def finalize_in_new_cluster(supported: Mapping[str, LevelRange] = SUPPORTED_FEATURES) -> Put:
    return Put(FEATURES, features_value({name: levels.highest for name, levels in supported.items()}))


def check_supports_finalized(supported: Mapping[str, LevelRange], stored: Entry | None) -> None:
    """Whether a broker may be in a cluster with these levels. Raises UNSUPPORTED_VERSION."""
    finalized = FINALIZED_BEFORE if stored is None else features_of(stored)
    for name, level in finalized.levels.items():
        levels = supported.get(name, _WITHOUT)
        if not levels.lowest <= level <= levels.highest:
            message = f"the cluster has finalized {name} {level}, this broker supports levels {levels}"
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, message)


def update_features(image: MetadataImage, updates: Sequence[FeatureUpdate]) -> Transaction:
    """All of them or none; raises INVALID_UPDATE_VERSION. Expected are the registrations that were looked at."""
    for update in updates:
        _check(image, update)
    after = {**image.features.levels, **{update.name: update.level for update in updates}}
    if after == image.features.levels:
        return Transaction((), ())
    registered = tuple(Expect(f"{BROKERS}{node_id}", broker.epoch) for node_id, broker in image.brokers.items())
    epoch = image.features.epoch or ABSENT
    return Transaction((Expect(FEATURES, epoch), *registered), (Put(FEATURES, features_value(after)),))


def _check(image: MetadataImage, update: FeatureUpdate) -> None:
    """In Kafka's order."""
    name, level, upgrade_type = update
    if upgrade_type not in {each.value for each in UpgradeType}:
        raise _refusal(update, f"there is no upgrade type {upgrade_type}")
    if level < 0:
        raise _refusal(update, "a level is not below 0")
    if name not in SUPPORTED_FEATURES:
        raise _refusal(update, "there is no such feature")
    supported = {"this broker": SUPPORTED_FEATURES[name]}
    supported |= {f"broker {node_id}": each.features.get(name, _WITHOUT) for node_id, each in image.brokers.items()}
    for broker, levels in supported.items():
        if not levels.lowest <= level <= levels.highest:
            raise _refusal(update, f"{broker} supports levels {levels}")
    current = image.features.levels.get(name, 0)
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        raise _refusal(update, f"the level is {current}, and a downgrade was not asked for")
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        raise _refusal(update, f"the level is {current}, and an upgrade was not asked for")


def _refusal(update: FeatureUpdate, why: str) -> KafkaError:
    message = f"no feature was changed: {update.name} cannot be set to {update.level}: {why}"
    return error_for(ErrorCode.INVALID_UPDATE_VERSION, message)
