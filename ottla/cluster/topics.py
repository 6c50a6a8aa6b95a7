"""Decisions about topics: whether one may be created, grown or deleted, and where its partitions go.

Pure: the image, the counts and chance come in, a `TopicInfo` or the `KafkaError` of the answer goes out.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from ottla.cluster.image import (
    CLUSTER_METADATA,
    INTERNAL_TOPICS,
    ZERO_ID,
    BrokerInfo,
    BrokerState,
    MetadataImage,
    PartitionInfo,
    TopicInfo,
)
from ottla.protocol.errors import (
    ErrorCode,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    error_for,
)

TOPIC_NAME_LENGTH_MAX = 249
# Kafka's bound on the partitions one request may create (ReplicationControlManager).
PARTITIONS_PER_REQUEST_MAX = 10_000
USE_DEFAULT = -1

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class Random(Protocol):
    def getrandbits(self, bits: int, /) -> int: ...

    def randrange(self, stop: int, /) -> int: ...


class TopicSpec(NamedTuple):
    """What a client wants of a new topic. USE_DEFAULT leaves a count to the broker; `assignments` gives the replicas
    of each partition by hand and excludes both counts."""

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()


class TopicDefaults(NamedTuple):
    num_partitions: int
    replication_factor: int


def check_topic_name(name: str | None) -> None:
    """Raise InvalidTopicException where a topic cannot be called so."""
    if not name:
        raise InvalidTopicException("a topic name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopicException(f"a topic cannot be called '{name}'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicException(
            f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one {len(name)}"
        )
    if not _LEGAL_NAME.match(name):
        raise InvalidTopicException(f"topic name '{name}' has characters other than letters, digits, '.', '_' and '-'")


def check_new_name(name: str, image: MetadataImage) -> None:
    """Raise the KafkaError that says why no topic can be called so beside those of the image."""
    check_topic_name(name)
    _check_not_taken(name, image)


def plan_topic(
    spec: TopicSpec, image: MetadataImage, defaults: TopicDefaults, configs: Mapping[str, str], rng: Random
) -> TopicInfo:
    """The new topic. Raises the KafkaError that answers the request when it cannot be created."""
    check_topic_name(spec.name)
    if spec.name in image.topics:
        raise TopicAlreadyExists(f"topic '{spec.name}' already exists")
    if spec.assignments:
        replicas = _assigned_replicas(spec, image.brokers)
    else:
        replicas = _placed_replicas(spec, image, defaults, rng)
    partitions = tuple(_new_partition(each, image) for each in replicas)
    return TopicInfo(spec.name, new_topic_id(rng, image.topics_by_id), partitions, dict(configs))


def plan_more_partitions(
    topic: TopicInfo, count: int, assignments: Sequence[Sequence[int]] | None, image: MetadataImage, rng: Random
) -> TopicInfo:
    """The topic with partitions added to make `count`; those it had stay as they are."""
    if topic.is_internal:
        raise InvalidRequest(f"the number of partitions of {topic.name} is fixed: groups are found by it")
    added = count - len(topic.partitions)
    if added < 0:
        raise InvalidPartitions(f"topic {topic.name} has {len(topic.partitions)} partitions, more than {count}")
    if added == 0:
        raise InvalidPartitions(f"topic {topic.name} already has {count} partitions")
    check_partition_count(added)
    if assignments is None:
        replicas = _placed(added, topic.replication_factor, image, rng)
    else:
        replicas = _added_replicas(topic, added, assignments, image.brokers)
    return replace(topic, partitions=topic.partitions + tuple(_new_partition(each, image) for each in replicas))


def check_deletable(topic: TopicInfo | None, *, deletion_enabled: bool, says_disabled: bool) -> TopicInfo:
    """The topic, if it may be deleted. `says_disabled`: the client knows TOPIC_DELETION_DISABLED (v3)."""
    if not deletion_enabled:
        code = ErrorCode.TOPIC_DELETION_DISABLED if says_disabled else ErrorCode.INVALID_REQUEST
        raise error_for(code, "topic deletion is disabled by delete.topic.enable=false")
    if topic is None:
        raise UnknownTopicOrPartition("this topic does not exist")
    if topic.is_internal:
        raise InvalidTopicException(f"{topic.name} belongs to the broker and cannot be deleted")
    return topic


def check_creatable_by_clients(name: str, image: MetadataImage) -> None:
    if name in INTERNAL_TOPICS:
        _check_not_taken(name, image)
        raise InvalidRequest(f"{name} belongs to the broker, which creates it when it is needed")
    if name == CLUSTER_METADATA:
        raise InvalidRequest(f"{name} is the name of a controller's log, which no topic can have")


def check_partition_count(count: int) -> None:
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise PolicyViolation(f"one request creates at most {PARTITIONS_PER_REQUEST_MAX} partitions, not {count}")


def new_topic_id(rng: Random, taken: Mapping[bytes, object]) -> bytes:
    """A version 4 UUID that is not zero and not in use."""
    while True:
        bits = rng.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (0x2 << 62)
        topic_id = bits.to_bytes(16, "big")
        if topic_id != ZERO_ID and topic_id not in taken:
            return topic_id


def place(partitions: int, factor: int, brokers: Iterable[BrokerInfo], rng: Random) -> list[tuple[int, ...]]:
    """Replicas for each partition, the first to lead, on these brokers; there are at least `factor` of them.

    Leaders go round the brokers from a random one, in alternating racks. Followers stand on the brokers after the
    leader, one further with every round, so that what one broker led is led by all others when it fails; as many racks
    as can be have a replica."""
    infos = sorted(brokers, key=lambda each: each.node_id)
    racks = {each.node_id: each.rack for each in infos}
    ring = _alternating_racks(infos)
    start = rng.randrange(len(ring))
    placed: list[tuple[int, ...]] = []
    for index in range(partitions):
        at = (start + index) % len(ring)
        others = _turned(ring[at + 1 :] + ring[:at], index // len(ring))
        candidates = _new_racks_first(ring[at], others, racks)
        placed.append((ring[at], *candidates[: factor - 1]))
    return placed


def lacks_brokers(spec: TopicSpec, image: MetadataImage, defaults: TopicDefaults) -> bool:
    """Whether the topic is for more brokers, or for others, than the image has."""
    if spec.assignments:
        return any(node_id not in image.brokers for _, replicas in spec.assignments for node_id in replicas)
    return _factor_of(spec, defaults) > len(image.brokers)


def _factor_of(spec: TopicSpec, defaults: TopicDefaults) -> int:
    return defaults.replication_factor if spec.replication_factor == USE_DEFAULT else spec.replication_factor


def _check_not_taken(name: str, image: MetadataImage) -> None:
    if name in image.topics:
        raise TopicAlreadyExists(f"topic '{name}' already exists")
    # Metrics of Kafka write '.' as '_', so two names that differ only in these would be one there.
    flattened = name.replace(".", "_")
    if "_" not in flattened:
        return
    for other in image.topics:
        if len(other) == len(name) and other.replace(".", "_") == flattened:
            raise InvalidTopicException(f"topic '{name}' collides with existing topic '{other}': '.' and '_' are alike")


def _placed_replicas(
    spec: TopicSpec, image: MetadataImage, defaults: TopicDefaults, rng: Random
) -> list[tuple[int, ...]]:
    partitions = defaults.num_partitions if spec.num_partitions == USE_DEFAULT else spec.num_partitions
    factor = _factor_of(spec, defaults)
    if factor < 1:
        raise InvalidReplicationFactor(f"a topic has at least one replica, not {factor}")
    if partitions < 1:
        raise InvalidPartitions(f"a topic has at least one partition, not {partitions}")
    check_partition_count(partitions)
    return _placed(partitions, factor, image, rng)


def _placed(partitions: int, factor: int, image: MetadataImage, rng: Random) -> list[tuple[int, ...]]:
    """On active brokers. Where those are too few, the last replicas stand on others that are registered, as in Kafka:
    they begin their life out of sync, and are there when their brokers come back."""
    if factor > len(image.brokers):
        raise InvalidReplicationFactor(f"replication factor {factor} is more than the {len(image.brokers)} brokers")
    active = [broker for broker in image.brokers.values() if broker.state is BrokerState.ACTIVE]
    if not active:
        raise InvalidReplicationFactor("no broker is active")
    away = [node_id for node_id, broker in image.brokers.items() if broker.state is not BrokerState.ACTIVE]
    placed = place(partitions, min(factor, len(active)), active, rng)
    return [(*each, *_turned(away, index)[: factor - len(each)]) for index, each in enumerate(placed)]


def _assigned_replicas(spec: TopicSpec, brokers: Mapping[int, BrokerInfo]) -> list[tuple[int, ...]]:
    if spec.num_partitions != USE_DEFAULT or spec.replication_factor != USE_DEFAULT:
        raise InvalidRequest("give either replicas by hand, or the numbers of partitions and replicas, not both")
    by_index = {index: tuple(replicas) for index, replicas in spec.assignments}
    if len(by_index) != len(spec.assignments) or sorted(by_index) != list(range(len(by_index))):
        raise InvalidReplicaAssignment("replicas given by hand must name each partition from 0 up once")
    check_partition_count(len(by_index))
    return _checked_replicas([by_index[index] for index in range(len(by_index))], None, brokers)


def _added_replicas(
    topic: TopicInfo, added: int, assignments: Sequence[Sequence[int]], brokers: Mapping[int, BrokerInfo]
) -> list[tuple[int, ...]]:
    if len(assignments) != added:
        raise InvalidReplicaAssignment(f"{added} partitions are added, but replicas given for {len(assignments)}")
    return _checked_replicas([tuple(each) for each in assignments], topic.replication_factor, brokers)


def _checked_replicas(
    replicas: list[tuple[int, ...]], factor: int | None, brokers: Mapping[int, BrokerInfo]
) -> list[tuple[int, ...]]:
    for each in replicas:
        if not each:
            raise InvalidReplicaAssignment("a partition needs at least one replica")
        if len(set(each)) != len(each):
            raise InvalidReplicaAssignment(f"replicas {list(each)} name a broker twice")
        unknown = [broker for broker in each if broker not in brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"there is no broker {unknown[0]}")
        factor = len(each) if factor is None else factor
        if len(each) != factor:
            raise InvalidReplicaAssignment(f"replicas {list(each)}: every partition of a topic has {factor} of them")
    return replicas


def new_partition(replicas: tuple[int, ...], active: Collection[int]) -> PartitionInfo:
    """A partition without records: of its replicas, at least one is active."""
    isr = tuple(replica for replica in replicas if replica in active)
    assert isr, f"none of the replicas {replicas} is active"
    return PartitionInfo(leader=isr[0], leader_epoch=0, partition_epoch=0, replicas=replicas, isr=isr)


def _new_partition(replicas: tuple[int, ...], image: MetadataImage) -> PartitionInfo:
    active = image.active_brokers
    if active.isdisjoint(replicas):
        raise InvalidReplicaAssignment(f"none of the brokers {list(replicas)} is active")
    return new_partition(replicas, active)


def _turned(brokers: list[int], steps: int) -> list[int]:
    at = steps % len(brokers) if brokers else 0
    return brokers[at:] + brokers[:at]


def _new_racks_first(leader: int, others: list[int], racks: Mapping[int, str | None]) -> list[int]:
    """The others, in their order, but those first that bring in a rack."""
    seen = {racks[leader]}
    first: list[int] = []
    for broker in others:
        if racks[broker] not in seen:
            seen.add(racks[broker])
            first.append(broker)
    return first + [broker for broker in others if broker not in first]


def _alternating_racks(brokers: Iterable[BrokerInfo]) -> list[int]:
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda each: each.node_id):
        racks.setdefault(broker.rack, []).append(broker.node_id)
    ring: list[int] = []
    while len(racks):
        for rack in list(racks):
            ring.append(racks[rack].pop(0))
            if not racks[rack]:
                del racks[rack]
    return ring


def with_new_terms(topic: TopicInfo, leader: int) -> TopicInfo:
    """The topic when `leader` has begun a new term in every partition that it leads."""
    return replace(
        topic,
        partitions=tuple(
            replace(partition, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)
            if partition.leader == leader
            else partition
            for partition in topic.partitions
        ),
    )
