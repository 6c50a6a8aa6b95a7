"""What a broker has to tell beside the facts of its coordinator (`ottla.coordinator.facts`): of partitions, of itself,
and samples.

They are news as well: nobody needs to hear them, and losing one changes nothing. Those that concern no group have a
`key` where they belong to a partition or topic.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ottla.coordinator.facts import BaseFact


@dataclass(frozen=True, slots=True)
class LeaderChanged(BaseFact):
    """A partition has another leader, the first it ever had, or none."""

    event: ClassVar = "leader_changed"

    topic: str
    partition: int
    leader: int | None
    """None: it has no leader."""
    previous_leader: int | None
    """None: it had no leader."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class IsrChanged(BaseFact):
    """The leader is the same, the replicas that are in sync with it are others."""

    event: ClassVar = "isr_changed"

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    joined: tuple[int, ...]
    left: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class FollowerLagSampled(BaseFact):
    """How far a follower is behind in partitions of a topic: three lists of equal length, in order of partitions."""

    event: ClassVar = "follower_lag_sampled"

    topic: str
    follower: int
    partition: tuple[int, ...]
    lag: tuple[int | None, ...]
    """Records between the follower's end and the leader's; None where it has not fetched in this leader's term."""
    in_sync: tuple[bool, ...]

    @property
    def key(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class CoordinatorMoved(BaseFact):
    """A partition of a coordinator topic is loaded: its groups are served here."""

    event: ClassVar = "coordinator_moved"

    coordinator_topic: str
    partition: int
    coordinator: int
    previous_coordinator: int | None
    """None where this broker has not seen another."""
    coordinator_epoch: int
    groups: int
    load_ms: int
    """From the beginning of the term."""

    @property
    def key(self) -> str:
        return f"{self.coordinator_topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class LagSampled(BaseFact):
    """How far a group is in a topic: three lists of equal length, in order of partitions."""

    event: ClassVar = "lag_sampled"

    group_id: str
    topic: str
    partition: tuple[int, ...]
    committed: tuple[int, ...]
    end: tuple[int | None, ...]
    """High watermarks; None where this broker has no replica."""


@dataclass(frozen=True, slots=True)
class CommitsSummedUp(BaseFact):
    event: ClassVar = "offsets_committed"

    group_id: str
    member_id: str
    commits: int
    partitions: int
    """Of all those commits together."""


@dataclass(frozen=True, slots=True)
class BrokerStarted(BaseFact):
    event: ClassVar = "broker_started"


@dataclass(frozen=True, slots=True)
class Dropped(BaseFact):
    event: ClassVar = "dropped"

    count: int


BrokerFact: TypeAlias = (
    LeaderChanged
    | IsrChanged
    | FollowerLagSampled
    | CoordinatorMoved
    | LagSampled
    | CommitsSummedUp
    | BrokerStarted
    | Dropped
)
