"""What the doctor has seen of a cluster at one moment, as plain values: the checks decide on them alone.

A field that could not be read is None. Of it nothing is said but that it was not checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.cli.client import TopicPartition
from ottla.cli.operations.brokers import LogDirDescription

Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class SeenBroker:
    """`configs` are the broker's own properties by name; `clock_ahead_ms` how far its clock is ahead of ours, and
    `clock_within_ms` how exactly that is known."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    ranges: Ranges | None = None
    finalized: Mapping[str, int] = field(default_factory=dict[str, int])
    """Levels of features that the cluster has agreed on, by feature."""
    supported: Mapping[str, int] = field(default_factory=dict[str, int])
    configs: Mapping[str, str] | None = None
    log_dirs: tuple[LogDirDescription, ...] | None = None
    clock_ahead_ms: int | None = None
    clock_within_ms: int = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SeenPartition:
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    newest_ms: int | None = None
    """The largest timestamp of its records; None where there is none."""

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.isr)


@dataclass(frozen=True, slots=True)
class SeenMember:
    member_id: str
    client_id: str
    assignment: tuple[TopicPartition, ...] | None
    topics: tuple[str, ...] | None
    """What it subscribes to."""

    @property
    def name(self) -> str:
        return self.client_id or self.member_id


@dataclass(frozen=True, slots=True)
class SeenGroup:
    state: str
    protocol: str
    members: tuple[SeenMember, ...]
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """`at_s` is of a clock that only goes forward, `wall_ms` the time of day. Of topics and groups there are those
    that were asked for."""

    at_s: float
    wall_ms: int
    cluster_id: str | None
    controller: int | None
    brokers: Mapping[int, SeenBroker]
    partitions: Mapping[TopicPartition, SeenPartition]
    groups: Mapping[str, SeenGroup]
    topic_configs: Mapping[str, Mapping[str, str]]
    internal_topics: frozenset[str] = frozenset()

    def config(self, topic: str, name: str) -> str | None:
        """Of a topic, with the broker's value where it has none of its own; None where it is not known."""
        return self.topic_configs.get(topic, {}).get(name)

    @property
    def topics(self) -> dict[str, list[SeenPartition]]:
        found: dict[str, list[SeenPartition]] = {}
        for (topic, _), partition in sorted(self.partitions.items()):
            found.setdefault(topic, []).append(partition)
        return found


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Of a partition, the producer whose open transaction began first. `last_ms` is when it last wrote there."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_ms: int
    transactional_id: str | None = None
    """None: it is not known."""
    is_coordinated: bool | None = None
    """Whether its coordinator has a transaction of it that it will end; None: no coordinator could be asked."""


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """The record at which a group stands, as far as it could be read."""

    size_bytes: int | None
    headers: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What the events of a group say about the time of the examination, and about before."""

    rebalancing_s: float | None
    """For how long the rebalance that is going on has lasted; None where there is none."""
    generations: int
    """That began during the examination."""
    waits_for: str | None = None
    expired_session_timeout_ms: int | None = None
    """The shortest session timeout of members whose sessions have expired within the hour."""
    owners: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    """How many owners each partition has had within the hour."""


@dataclass(frozen=True, slots=True)
class Examination:
    """Two samples and what was looked at because of them."""

    first: Sample
    last: Sample
    open_transactions: Mapping[TopicPartition, OpenTransaction] = field(
        default_factory=dict[TopicPartition, OpenTransaction]
    )
    waiting_records: Mapping[TopicPartition, WaitingRecord] = field(default_factory=dict[TopicPartition, WaitingRecord])
    histories: Mapping[str, GroupHistory] | None = None
    """By group; None where the cluster has no events."""

    @property
    def span_s(self) -> float:
        return self.last.at_s - self.first.at_s
