"""What a handle shows: topics, records, groups, connections, as they were at one moment. Times are in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.coordinator.classic.causes import Cause
from ottla.protocol.records.record import RecordHeader


class HandleView:
    """What all of them have in common; a dataclass makes its own by compiling them, which takes a while."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HandleView) and type(self) is type(other) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash((type(self), *_values(self)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self.__slots__, _values(self), strict=True))
        return f"{type(self).__name__}({shown})"


def _values(view: HandleView) -> tuple[object, ...]:
    return tuple(getattr(view, name) for name in view.__slots__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StoredRecord(HandleView):
    """A record as it stands in the log of its partition."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[RecordHeader]
    producer_id: int
    """-1 without idempotence, as are epoch and sequence."""
    producer_epoch: int
    sequence: int
    leader_epoch: int
    is_control: bool = False
    """A marker that ends a transaction."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionView(HandleView):
    """A partition as its leader has it; of one without a leader offsets are -1."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int = -1
    last_stable_offset: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SegmentView(HandleView):
    """A segment of a partition's log, at its leader."""

    base_offset: int
    size_bytes: int
    is_active: bool
    """Whether appends go to it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerView(HandleView):
    """What the leader of a partition remembers of a producer."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_first_offset: int
    """Of the transaction that it has open there; -1 without one."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransactionView(HandleView):
    """What the coordinator knows of a transactional id."""

    transactional_id: str
    state: str
    """As DescribeTransactions shows it: Empty, Ongoing, PrepareCommit, CompleteCommit, …"""
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    """Wall time; -1 without a transaction."""
    partitions: tuple[tuple[str, int], ...]
    """Those that take part in it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LogChange(HandleView):
    """What a job has done to a partition, at its leader."""

    partition: int
    log_start_offset: int
    records_removed: int
    """By offsets, from the log start on; compaction leaves that where it is."""
    segments: int
    """Those that there are now."""
    size_bytes: int
    """As it is now."""
    bytes_removed: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopicView(HandleView):
    """A topic and its partitions."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionView, ...]
    configs: Mapping[str, str]
    """Those that were set for the topic itself."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MemberView(HandleView):
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    subscription: tuple[str, ...]
    """Topics; empty where the bytes are not the consumer protocol's."""
    assignment: Mapping[str, tuple[int, ...]]
    """Partitions by topic, as it was assigned them last."""
    waits_for: str | None
    """The request of it that is parked: JoinGroup, SyncGroup; None without one."""
    last_heard_ms: int
    """How long ago it was heard of; 0 while a request of it is parked."""
    session_ends_in_ms: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupView(HandleView):
    """A group as its coordinator has it."""

    group_id: str
    exists: bool
    state: str
    """As DescribeGroups shows it: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[MemberView, ...]
    offsets: Mapping[tuple[str, int], int]
    """What is committed, by topic and partition."""

    def owner_of(self, topic: str, partition: int) -> MemberView | None:
        return next((each for each in self.members if partition in each.assignment.get(topic, ())), None)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupRebalance(HandleView):
    """One rebalance of a group. Times are those of the broker's clock."""

    generation: int
    """The one that began with it; of one that goes on, the one that ends."""
    cause: Cause
    member_id: str | None
    """The member that caused it."""
    client_reason: str | None
    started_ms: int
    started_ns: int
    """The same by the machine's clock, `time.monotonic_ns`."""
    join_phase_ms: int | None = None
    """None as long as members are waited for."""
    sync_phase_ms: int | None = None
    """None as long as the assignment is waited for."""
    members: tuple[str, ...] = ()
    removed: Mapping[str, Cause] | None = None
    """Members that left the group since the rebalance before, and why."""

    @property
    def is_over(self) -> bool:
        return self.sync_phase_ms is not None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConnectionView(HandleView):
    """A connection that a client has open."""

    name: str
    """Short, as failure reports have it: `rdkafka#3`."""
    client_id: str | None
    software: str
    """Name and version as the client gives them; empty where it gives none."""
    address: str
    principal: str
    listener: str
    apis: Mapping[str, tuple[int, ...]]
    """Versions used, by API."""
    groups: tuple[str, ...]
    """Groups that its requests named."""
    opened_in: str
    """The test that was running when its first request came; empty outside of tests."""
    in_flight: int
    """Requests that have no answer yet."""
