"""How topics and configs are written into a metadata store: JSON, for people with a database tool.

topics/<name>               topic id and number of partitions
partitions/<name>/<index>   leader, epochs, replicas, ISR; a key of its own, so that ISR changes do not collide
configs/topics/<name>       the topic's own configs
configs/brokers/<id>        properties altered at run time for one broker; with no id, for all brokers
deleted/<topic id>          a topic whose logs may still be on disk, until a start has seen to it
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.cluster.image import PartitionInfo, TopicInfo
from ottla.cluster.store import Change, Delete, Entry, Put, StoreError

TOPICS = "topics/"
PARTITIONS = "partitions/"
TOPIC_CONFIGS = "configs/topics/"
BROKER_CONFIGS = "configs/brokers/"
DELETED = "deleted/"


def topic_values(topic: TopicInfo) -> dict[str, bytes]:
    """Every key that `topic` takes, with its value."""
    values = {
        f"{TOPICS}{topic.name}": _to_bytes({"id": topic.topic_id.hex(), "partitions": len(topic.partitions)}),
        f"{TOPIC_CONFIGS}{topic.name}": config_value(topic.configs),
    }
    for index, partition in enumerate(topic.partitions):
        values[f"{PARTITIONS}{topic.name}/{index}"] = _to_bytes(
            {
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "partition_epoch": partition.partition_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
            }
        )
    return values


def config_value(configs: Mapping[str, str]) -> bytes:
    return _to_bytes(dict(configs))


def changes_between(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[Change]:
    """What makes the keys of `new` out of those of `old`."""
    changes: list[Change] = [Put(key, value) for key, value in new.items() if old.get(key) != value]
    changes += [Delete(key) for key in old if key not in new]
    return changes


def topics_of(entries: Sequence[Entry]) -> list[TopicInfo]:
    """The topics in what was read from a store; raises StoreError when an entry cannot be understood."""
    values = {entry.key: _parsed(entry) for entry in entries}
    return [_topic(key.removeprefix(TOPICS), values) for key in values if key.startswith(TOPICS)]


def broker_configs_of(entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
    """Properties altered at run time, by broker id in digits; those for all brokers under ""."""
    return {
        entry.key.removeprefix(BROKER_CONFIGS): _parsed(entry)
        for entry in entries
        if entry.key.startswith(BROKER_CONFIGS)
    }


def deletion_values(topics: Iterable[TopicInfo]) -> dict[str, bytes]:
    """Marks that the logs of these topics are not wanted any more. A log with neither topic nor mark is left alone:
    whoever lost the metadata file wants to keep the records."""
    return {f"{DELETED}{topic.topic_id.hex()}": _to_bytes({"name": topic.name}) for topic in topics}


def deleted_topic_ids(entries: Sequence[Entry]) -> set[bytes]:
    return {bytes.fromhex(entry.key.removeprefix(DELETED)) for entry in entries if entry.key.startswith(DELETED)}


def _topic(name: str, values: Mapping[str, Any]) -> TopicInfo:
    try:
        topic = values[TOPICS + name]
        partitions = tuple(_partition(values[f"{PARTITIONS}{name}/{index}"]) for index in range(topic["partitions"]))
        return TopicInfo(name, bytes.fromhex(topic["id"]), partitions, values.get(TOPIC_CONFIGS + name, {}))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the metadata of topic {name} is damaged: {error!r}") from error


def _partition(value: Mapping[str, Any]) -> PartitionInfo:
    return PartitionInfo(
        leader=value["leader"],
        leader_epoch=value["leader_epoch"],
        partition_epoch=value["partition_epoch"],
        replicas=tuple(value["replicas"]),
        isr=tuple(value["isr"]),
    )


def _parsed(entry: Entry) -> Any:
    try:
        return json.loads(entry.value)
    except ValueError as error:
        raise StoreError(f"the metadata under {entry.key} is damaged: {error}") from error


def _to_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
