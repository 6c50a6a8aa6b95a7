"""How the cluster is written into a metadata store: JSON, for people with a database tool.

cluster-id                  the cluster's id, written by the first broker
controller                  the broker that decides about partitions, under its lease; the revision is its epoch
brokers/<id>                registration: incarnation, listeners, rack; the revision is the broker epoch
sessions/<id>               state of a broker that is there, under its lease
lost-data/<id>              a broker that has come back without what it had, until it has left every ISR and ELR
producer-ids                the next producer id that no broker has claimed
features                    the level of each feature by which the cluster works; the revision is their epoch
log-ends/<id>               how far the broker's logs go, of partitions without a possible leader, under its lease
topics/<name>               topic id and number of partitions
partitions/<name>/<index>   leader, epochs, replicas, ISR…; a key of its own, so that ISR changes do not collide
configs/topics/<name>       the topic's own configs
configs/brokers/<id>        properties altered at run time for one broker; with no id, for all brokers
scram/<mechanism>/<user>    a user's SCRAM credential (`scram_users`); of the name, what is not a letter, a digit or one
                            of `_.-~` is written as %XX
acls/<hash>                 an ACL (`acls`), by a hash of its fields
quotas/<type>/<name>        the quotas of a user, a client id or an address (`client_quotas`), escaped like users; of a
                            user with a client id there are two pairs; an empty name is the default
secrets/decoy               random bytes that the salts of users who do not exist are made from, written by the first
                            broker
deleted/<topic id>          a deleted topic, and the brokers that may still have logs of it; each takes itself out
                            when it has none, and the mark goes with the last
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cluster.image import (
    FEATURES_OF_BEFORE,
    NO_LEADER,
    BrokerInfo,
    BrokerState,
    FinalizedFeatures,
    LevelRange,
    Listener,
    LogEnd,
    PartitionInfo,
    TopicInfo,
)
from ottla.cluster.store import SECRETS, Change, Delete, Entry, Put, StoreError

CLUSTER_ID = "cluster-id"
CONTROLLER = "controller"
FEATURES = "features"
PRODUCER_IDS = "producer-ids"
BROKERS = "brokers/"
SESSIONS = "sessions/"
LOST_DATA = "lost-data/"
LOG_ENDS = "log-ends/"
TOPICS = "topics/"
PARTITIONS = "partitions/"
TOPIC_CONFIGS = "configs/topics/"
BROKER_CONFIGS = "configs/brokers/"
ALL_BROKERS = ""
DELETED = "deleted/"
DECOY_SECRET = f"{SECRETS}decoy"
DECOY_SECRET_BYTES_MIN = 16

# At some 10 µs each, what a loop does in a few milliseconds.
ENTRIES_PER_SLICE = 256

_parse = json.JSONDecoder().decode

# Written only where they say something, so that most partitions are short.
_SELDOM = ("elr", "last_known_elr", "adding", "removing")


def topic_values(topic: TopicInfo) -> dict[str, bytes]:
    """Every key that `topic` takes, with its value."""
    values = {
        f"{TOPICS}{topic.name}": _to_bytes({"id": topic.topic_id.hex(), "partitions": len(topic.partitions)}),
        f"{TOPIC_CONFIGS}{topic.name}": config_value(topic.configs),
    }
    for index, partition in enumerate(topic.partitions):
        values[partition_key(topic.name, index)] = partition_value(partition)
    return values


def partition_key(topic: str, index: int) -> str:
    return f"{PARTITIONS}{topic}/{index}"


def partition_value(partition: PartitionInfo) -> bytes:
    value: dict[str, object] = {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
    }
    value |= {name: getattr(partition, name) for name in _SELDOM if getattr(partition, name)}
    if partition.last_leader != NO_LEADER:
        value["last_leader"] = partition.last_leader
    return _to_bytes(value)


def config_value(configs: Mapping[str, str]) -> bytes:
    return _to_bytes(dict(configs))


def registration_value(broker: BrokerInfo) -> bytes:
    return _to_bytes(
        {
            "incarnation": broker.incarnation,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "listeners": [[each.name, each.host, each.port] for each in broker.listeners],
            "admin_url": broker.admin_url,
            "features": dict(broker.features),
        }
    )


def features_value(levels: Mapping[str, int]) -> bytes:
    return _to_bytes(dict(levels))


def features_of(entry: Entry) -> FinalizedFeatures:
    value = parsed(entry)
    try:
        return FinalizedFeatures({str(name): int(level) for name, level in value.items()}, entry.revision)
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error!r}") from error


def next_producer_id_value(next_id: int) -> bytes:
    return str(next_id).encode()


def next_producer_id_of(entry: Entry) -> int:
    try:
        return int(entry.value)
    except ValueError as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error}") from error


def session_value(incarnation: str, state: BrokerState) -> bytes:
    return _to_bytes({"incarnation": incarnation, "state": state.value})


def controller_value(node_id: int) -> bytes:
    return _to_bytes({"id": node_id})


def changes_between(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[Change]:
    """What makes the keys of `new` out of those of `old`."""
    changes: list[Change] = [Put(key, value) for key, value in new.items() if old.get(key) != value]
    changes += [Delete(key) for key in old if key not in new]
    return changes


def topics_of(entries: Sequence[Entry]) -> list[TopicInfo]:
    """The topics in what was read from a store; raises StoreError when an entry cannot be understood."""
    return [topic for some in topics_in_slices(entries) for topic in some]


def topics_in_slices(entries: Sequence[Entry]) -> Iterator[list[TopicInfo]]:
    """The same, a few at a time: each list is made when it is asked for, in a few milliseconds."""
    of_topics = {entry.key: entry for entry in entries if entry.key.startswith((TOPICS, PARTITIONS, TOPIC_CONFIGS))}
    some: list[TopicInfo] = []
    parsed_entries = 0
    for key in of_topics:
        if not key.startswith(TOPICS):
            continue
        topic = topic_of(key.removeprefix(TOPICS), of_topics)
        some.append(topic)
        parsed_entries += 1 + len(topic.partitions)
        if parsed_entries >= ENTRIES_PER_SLICE:
            yield some
            some, parsed_entries = [], 0
    if some:
        yield some


def topic_of(name: str, entries: Mapping[str, Entry]) -> TopicInfo:
    """The topic out of its entries by key; raises StoreError when one is missing or cannot be understood."""
    try:
        entry = entries[TOPICS + name]
        topic = parsed(entry)
        partitions = tuple(partition_of(entries[partition_key(name, index)]) for index in range(topic["partitions"]))
        configs = entries.get(TOPIC_CONFIGS + name)
        return TopicInfo(
            name,
            bytes.fromhex(topic["id"]),
            partitions,
            parsed(configs) if configs is not None else {},
            entry.revision,
            configs.revision if configs is not None else 0,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the metadata of topic {name} is damaged: {error!r}") from error


def partition_of(entry: Entry) -> PartitionInfo:
    value = parsed(entry)
    try:
        return PartitionInfo(
            leader=value["leader"],
            leader_epoch=value["leader_epoch"],
            partition_epoch=value["partition_epoch"],
            replicas=tuple(value["replicas"]),
            isr=tuple(value["isr"]),
            last_leader=value.get("last_leader", NO_LEADER),
            revision=entry.revision,
            **{name: tuple(value[name]) for name in _SELDOM if name in value},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error!r}") from error


def broker_of(entry: Entry) -> BrokerInfo:
    """A registration, of a broker without session so far."""
    value = parsed(entry)
    try:
        return BrokerInfo(
            node_id=int(entry.key.removeprefix(BROKERS)),
            host=value["host"],
            port=value["port"],
            rack=value["rack"],
            epoch=entry.revision,
            state=BrokerState.FENCED,
            incarnation=value["incarnation"],
            listeners=tuple(Listener(*each) for each in value["listeners"]),
            # Brokers of before have none.
            admin_url=value.get("admin_url", ""),
            features={name: LevelRange(*each) for name, each in value.get("features", FEATURES_OF_BEFORE).items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error!r}") from error


def session_of(entry: Entry) -> tuple[str, BrokerState]:
    """Whose session it is, and in what state."""
    value = parsed(entry)
    try:
        return value["incarnation"], BrokerState(value["state"])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error!r}") from error


def log_ends_value(log_ends: Mapping[tuple[bytes, int], LogEnd]) -> bytes:
    return _to_bytes([[topic_id.hex(), index, *end] for (topic_id, index), end in log_ends.items()])


def log_ends_of(entry: Entry) -> dict[tuple[bytes, int], LogEnd]:
    try:
        return {
            (bytes.fromhex(topic_id), index): LogEnd(leader_epoch, end, tuple((each, start) for each, start in epochs))
            for topic_id, index, leader_epoch, end, epochs in parsed(entry)
        }
    except (TypeError, ValueError) as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error!r}") from error


class DeletionMark(NamedTuple):
    """`brokers` may still have logs of the deleted topic."""

    topic_id: bytes
    name: str
    brokers: tuple[int, ...]
    revision: int = 0

    @property
    def key(self) -> str:
        return f"{DELETED}{self.topic_id.hex()}"


def deletion_mark(topic: TopicInfo) -> DeletionMark:
    """That the logs of this topic are not wanted any more. A log with neither topic nor mark is left alone, for
    a broker that has lost the metadata file wants to keep the records."""
    brokers = sorted({replica for partition in topic.partitions for replica in partition.replicas})
    return DeletionMark(topic.topic_id, topic.name, tuple(brokers))


def deletion_value(mark: DeletionMark) -> bytes:
    return _to_bytes({"name": mark.name, "brokers": mark.brokers})


def deletion_marks(entries: Sequence[Entry]) -> list[DeletionMark]:
    return [_deletion_mark_of(entry) for entry in entries if entry.key.startswith(DELETED)]


def _deletion_mark_of(entry: Entry) -> DeletionMark:
    value = parsed(entry)
    try:
        topic_id = bytes.fromhex(entry.key.removeprefix(DELETED))
        return DeletionMark(topic_id, value["name"], tuple(value["brokers"]), entry.revision)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error!r}") from error


def decoy_secret_value(secret: bytes) -> bytes:
    return _to_bytes({"secret": secret.hex()})


def decoy_secret_of(entry: Entry) -> bytes:
    """The error shows nothing of a secret, and has no cause that would."""
    try:
        secret = bytes.fromhex(_parse(entry.value.decode())["secret"])
    except (KeyError, TypeError, ValueError):
        secret = b""
    if len(secret) < DECOY_SECRET_BYTES_MIN:
        raise StoreError(f"the metadata under {entry.key} is damaged")
    return secret


def parsed(entry: Entry) -> Any:
    try:
        return _parse(entry.value.decode())
    except ValueError as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error}") from error


def _to_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
