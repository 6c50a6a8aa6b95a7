"""An immutable picture of the cluster: brokers, topics, partitions and their configs, at one moment.

A change makes a new image; who holds the old one goes on seeing what it saw. What the two have in common they
share.

`revision` fields say where in the metadata store a thing was read, so that a decision made on the image can be refused
when the image was old. They are not part of what two things are compared by.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.cluster.overlay import Overlay
from ottla.protocol.address import Address
from ottla.security.scram_credential import ScramCredential, ScramHash

if TYPE_CHECKING:
    from ottla.security.acl import AclBinding
    from ottla.security.acl_index import AclIndex
    from ottla.security.quotas import ClientQuotas, EntityQuotas, QuotaEntity

ZERO_ID = bytes(16)
NO_LEADER = -1

# Topics the broker keeps its own state in. Clients can read them and not write, create, grow or delete them (§3.6).
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
# The log of Kafka's controllers. Here no topic has that name; DescribeQuorum describes it.
CLUSTER_METADATA = "__cluster_metadata"

K = TypeVar("K")
V = TypeVar("V")

ScramUser = tuple[ScramHash, str]
"""A user has a credential for each mechanism."""

# KIP-890, whose second part is level 2.
TRANSACTION_VERSION = "transaction.version"

_NO_LOG_ENDS: "Mapping[tuple[bytes, int], LogEnd]" = MappingProxyType({})
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class BrokerState(StrEnum):
    """What a registered broker may do. Only an active one leads or joins an ISR; clients see the last two."""

    FENCED = "fenced"  # It has no session: it is stopped, dead or unreachable.
    STARTING = "starting"  # It has a session and has not caught up yet; fenced as well, in Kafka's words.
    ACTIVE = "active"
    STOPPING = "stopping"  # In controlled shutdown: it hands over what it leads.


class Listener(NamedTuple):
    """A named address of a broker, written as Kafka does: NAME://HOST:PORT."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return str(Address(self.host, self.port))

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


NO_RECORD = -1


class LogEnd(NamedTuple):
    """How far a replica's log goes, as its broker reports while the partition has no leader.

    `leader_epoch` is that of the state in which it has none: until there is another one, the log stays as it is.
    `epochs` are the newest epochs with records, each with its start offset, in rising order."""

    leader_epoch: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...] = ()

    @property
    def last_epoch(self) -> int:
        """Of the last record; NO_RECORD where there is none."""
        return self.epochs[-1][0] if self.epochs else NO_RECORD


class LevelRange(NamedTuple):
    """The levels of a feature that a broker supports. Level 0 is a cluster without the feature."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest}-{self.highest}"


class FinalizedFeatures(NamedTuple):
    """By which level of each feature the cluster works. `epoch` rises with every change: clients believe what came
    with the greatest that they have seen (KIP-584)."""

    levels: Mapping[str, int]
    epoch: int


# What a broker of this version supports.
SUPPORTED_FEATURES: Mapping[str, LevelRange] = MappingProxyType({TRANSACTION_VERSION: LevelRange(0, 2)})
# Brokers of before say nothing of features, and their clusters worked by this level.
FEATURES_OF_BEFORE: Mapping[str, LevelRange] = MappingProxyType({TRANSACTION_VERSION: LevelRange(1, 1)})
FINALIZED_BEFORE = FinalizedFeatures(MappingProxyType({TRANSACTION_VERSION: 1}), 0)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker and where clients reach it. `epoch` counts registrations (§19.1.1).

    `lost_data`: it has come back without its clean-shutdown mark, and must not stand in for what it had (§19.4.3 c).
    `log_ends`, by topic id and partition: what it reports in this session of partitions without a possible leader."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = 0
    state: BrokerState = BrokerState.ACTIVE
    incarnation: str = ""
    lost_data: bool = False
    listeners: tuple[Listener, ...] = ()
    admin_url: str = ""
    features: Mapping[str, LevelRange] = field(default_factory=lambda: SUPPORTED_FEATURES)
    log_ends: Mapping[tuple[bytes, int], LogEnd] = field(default_factory=lambda: _NO_LOG_ENDS)
    session_revision: int = field(default=0, compare=False)

    @property
    def is_live(self) -> bool:
        """Clients may be sent to it."""
        return self.state in (BrokerState.ACTIVE, BrokerState.STOPPING)

    def has_listener(self, name: str) -> bool:
        """A broker that names no listeners has one address for everybody."""
        return not self.listeners or any(each.name == name for each in self.listeners)

    def endpoint(self, listener: str) -> tuple[str, int]:
        """Where the listener of this name is; where there is none, the address that clients get."""
        for each in self.listeners:
            if each.name == listener:
                return each.host, each.port
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who leads a partition and who has it. `leader` is NO_LEADER while no broker does.

    `leader_epoch` counts leaders, `partition_epoch` every change of this state. `elr`, the eligible leader replicas,
    have left the ISR when it was too small to acknowledge anything, so they have all that was acknowledged.
    `last_known_elr` were in one of the two and have lost data since, or have less than the longest log that was left;
    `last_leader` led before there was no leader.
    `adding` and `removing` are the replicas a reassignment is about; both are among `replicas`."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    last_leader: int = NO_LEADER
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    revision: int = field(default=0, compare=False)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; the position of a partition in `partitions` is its index. `configs` holds only the topic's own."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: _NO_CONFIGS)
    revision: int = field(default=0, compare=False)
    configs_revision: int = field(default=0, compare=False)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """How many replicas the topic was given; a reassignment under way has more."""
        first = self.partitions[0]
        return len(first.replicas) - len(first.adding)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """`brokers` are all that are registered, `live_brokers` those clients may know. `controller_id` is NO_LEADER while
    there is no controller; `controller_epoch` counts controllers. `revision` is that of the last change applied."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerInfo] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: Overlay[str, TopicInfo]())
    topics_by_id: Mapping[bytes, TopicInfo] = field(default_factory=lambda: Overlay[bytes, TopicInfo]())
    controller_epoch: int = 0
    features: FinalizedFeatures = FINALIZED_BEFORE
    scram_credentials: Mapping[ScramUser, ScramCredential] = field(
        default_factory=lambda: Overlay[ScramUser, ScramCredential]()
    )
    acls: "Mapping[str, AclBinding]" = field(default_factory=lambda: Overlay["str", "AclBinding"]())
    """By their keys in the store."""
    acl_index: "AclIndex | None" = field(default=None, compare=False)
    """The same as decisions look for them. None: there has been none yet."""
    client_quotas: "Mapping[QuotaEntity, EntityQuotas]" = field(
        default_factory=lambda: Overlay["QuotaEntity", "EntityQuotas"]()
    )
    quota_index: "ClientQuotas | None" = field(default=None, compare=False)
    """The same as brokers look for them. None: there has been none yet."""
    decoy_secret: bytes = b""
    """Of the cluster: what the salts of users who do not exist are made from."""
    next_producer_id: int = 0
    """Above all that brokers have claimed."""
    revision: int = field(default=0, compare=False)

    @property
    def transaction_version(self) -> int:
        """The level of the feature; 0 while the cluster is without it."""
        return self.features.levels.get(TRANSACTION_VERSION, 0)

    @property
    def live_brokers(self) -> dict[int, BrokerInfo]:
        return {node_id: broker for node_id, broker in self.brokers.items() if broker.is_live}

    @property
    def active_brokers(self) -> frozenset[int]:
        """Those that may lead and join an ISR."""
        return frozenset(node_id for node_id, each in self.brokers.items() if each.state is BrokerState.ACTIVE)

    @property
    def brokers_that_lost_data(self) -> frozenset[int]:
        return frozenset(node_id for node_id, each in self.brokers.items() if each.lost_data)

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self.topics_by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str:
        """Of a topic; empty for an unknown id."""
        topic = self.topics_by_id.get(topic_id)
        return "" if topic is None else topic.name

    def partition(self, name: str, index: int) -> PartitionInfo | None:
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def partitions(self) -> Iterator[tuple[TopicInfo, int, PartitionInfo]]:
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    def with_topics(self, changed: Mapping[str, TopicInfo | None]) -> "MetadataImage":
        """The image after topics were created or altered, or (None) deleted."""
        by_id: dict[bytes, TopicInfo | None] = {}
        for name, topic in changed.items():
            before = self.topics.get(name)
            if before is not None:
                by_id[before.topic_id] = None
            if topic is not None:
                by_id[topic.topic_id] = topic
        return replace(
            self,
            topics=_overlay(self.topics).with_changes(changed),
            topics_by_id=_overlay(self.topics_by_id).with_changes(by_id),
        )

    def with_scram_credentials(self, changed: Mapping[ScramUser, ScramCredential | None]) -> "MetadataImage":
        """The image after credentials were written or, with None, deleted."""
        return replace(self, scram_credentials=_overlay(self.scram_credentials).with_changes(changed))

    def with_acls(self, changed: "Mapping[str, AclBinding | None]") -> "MetadataImage":
        """The image after ACLs were created or, with None, deleted; by their keys in the store."""
        # Imported here: a broker without ACLs starts without it.
        from ottla.security.acl_index import AclIndex

        index = AclIndex() if self.acl_index is None else self.acl_index
        removed = [acl for key in changed if (acl := self.acls.get(key)) is not None]
        added = [acl for acl in changed.values() if acl is not None]
        return replace(
            self,
            acls=_overlay(self.acls).with_changes(changed),
            acl_index=index.with_changes(added=added, removed=removed),
        )

    def with_client_quotas(self, changed: "Mapping[QuotaEntity, EntityQuotas | None]") -> "MetadataImage":
        """The image after quotas of entities were written or, with None, deleted."""
        # Imported here: a broker without quotas starts without it.
        from ottla.security.quotas import ClientQuotas

        after = _overlay(self.client_quotas).with_changes(changed)
        index = ClientQuotas() if self.quota_index is None else self.quota_index
        counts = dict(index.counts)
        for entity, quotas in changed.items():
            for key in self.client_quotas.get(entity, ()):
                counts[key] -= 1
            for key in quotas or ():
                counts[key] += 1
        return replace(self, client_quotas=after, quota_index=ClientQuotas(after, counts))

    def with_brokers(self, changed: Mapping[int, BrokerInfo | None]) -> "MetadataImage":
        """The image after brokers were registered or altered, or (None) unregistered; in the order of their ids."""
        brokers = {**self.brokers, **changed}
        kept = {node_id: broker for node_id, broker in sorted(brokers.items()) if broker is not None}
        return replace(self, brokers=MappingProxyType(kept))


def _overlay(mapping: Mapping[K, V]) -> Overlay[K, V]:
    # Topics given as a plain dict become an overlay at the first change.
    return mapping if isinstance(mapping, Overlay) else Overlay(mapping)
