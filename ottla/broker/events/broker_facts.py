"""Facts of a broker beside those of its groups (`ottla.coordinator.facts`): of partitions, of itself, and samples.

Those that concern no group have a `key` where they belong to a partition or a topic.
"""

from dataclasses import dataclass
from typing import ClassVar

from ottla.coordinator.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CommitsSummedUp(Fact):
    """Commits of a member since the last such event, at most `ottla.events.sample.interval.ms` ago."""

    event: ClassVar = "offsets_committed"

    group_id: str
    member_id: str
    commits: int
    """How many commits the member made."""
    partitions: int
    """Of how many partitions an offset was committed, all those commits together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LagSampled(Fact):
    """What a group has committed in a topic, and where the partitions end: three lists of equal length, in order of
    partitions, sampled every `ottla.events.sample.interval.ms`. Of a group that has no members, or has committed all
    there is, a sample that is the same as the last one is left out."""

    event: ClassVar = "lag_sampled"

    group_id: str
    topic: str
    """The topic."""
    partition: tuple[int, ...]
    """The partitions."""
    committed: tuple[int, ...]
    """The offset that the group has committed, for each partition."""
    end: tuple[int | None, ...]
    """The high watermark of each partition, or its last stable offset where the group has committed in a transaction;
    as of at most an interval ago where the coordinator has no replica of it, null where its leader has not answered."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LeaderChanged(Fact):
    """A partition has another leader, its first one, or none."""

    event: ClassVar = "leader_changed"

    topic: str
    partition: int
    """The partition."""
    leader: int | None
    """The broker that leads the partition; left out where none does."""
    previous_leader: int | None
    """The broker that led it before; left out where none did, as for a new topic."""
    leader_epoch: int
    """Counts leaders of the partition."""
    partition_epoch: int
    """Counts changes of the partition's state."""
    isr: tuple[int, ...]
    """The ISR as it is now."""

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class IsrChanged(Fact):
    """The ISR has shrunk or expanded under the same leader."""

    event: ClassVar = "isr_changed"

    topic: str
    partition: int
    """The partition."""
    leader: int
    """The broker that leads the partition."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    joined: tuple[int, ...]
    """The brokers that joined the ISR."""
    left: tuple[int, ...]
    """The brokers that left the ISR."""

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FollowerLagSampled(Fact):
    """How far a follower is behind this leader: three lists of equal length, in order of partitions, sampled every
    `ottla.events.sample.interval.ms`. Only partitions that are behind or out of sync are listed, and once more, with
    `lag` 0, those that were behind at the previous sample: in a partition that is not listed it has everything."""

    event: ClassVar = "follower_lag_sampled"

    topic: str
    follower: int
    """The broker that follows."""
    partition: tuple[int, ...]
    lag: tuple[int | None, ...]
    """Records between the follower's log end and the leader's, for each partition; null before its first fetch."""
    in_sync: tuple[bool, ...]
    """Whether the follower is in the ISR, for each partition."""

    @property
    def key(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class HangingTransactionFound(Fact):
    """The oldest open transaction of a partition is one that no coordinator seems to end: its producer has not written
    for `transaction.max.timeout.ms` and five minutes. Readers of committed records wait for it."""

    event: ClassVar = "hanging_transaction"
    level: ClassVar = "warning"

    topic: str
    partition: int
    """The partition."""
    producer_id: int
    """The producer whose transaction it is."""
    producer_epoch: int
    """The epoch of that producer."""
    first_offset: int
    """The first offset of the transaction."""
    silent_ms: int
    """For how long the producer has not written, as far as this broker knows."""

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoordinatorMoved(Fact):
    """A broker has loaded a partition of `__consumer_offsets` and serves its groups. `group_loaded` has each group."""

    event: ClassVar = "coordinator_moved"

    coordinator_topic: str
    partition: int
    """The partition of `__consumer_offsets`."""
    coordinator: int
    """The broker that serves the groups now."""
    previous_coordinator: int | None
    """The broker that served the groups before; left out where this one has not seen another, as after a start."""
    coordinator_epoch: int
    """The leader epoch of the partition."""
    groups: int
    """How many groups the partition has."""
    load_ms: int
    """How long the broker had led the partition by then."""

    @property
    def key(self) -> str:
        return f"{self.coordinator_topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BrokerStarted(Fact):
    """A run begins."""

    event: ClassVar = "broker_started"

    admin_url: str | None
    """Where the broker's admin listener is, null where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Dropped(Fact):
    """Events that were not published."""

    event: ClassVar = "dropped"

    count: int
    """How many events."""
