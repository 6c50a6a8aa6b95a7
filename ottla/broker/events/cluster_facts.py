"""What happens to the cluster's partitions, as facts beside those of the coordinator (`ottla.coordinator.facts`).

They are news as well: nobody needs to hear them, and losing one changes nothing.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """A partition has another leader, the first it ever had, or none."""

    topic: str
    partition: int
    leader: int | None
    """None: nobody leads it."""
    previous_leader: int | None
    """None: nobody led it."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The leader is the same, the replicas that are in sync with it are others."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    joined: tuple[int, ...]
    left: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FollowerLagSampled:
    """How far a follower is behind in partitions of a topic: three lists of equal length, in order of partitions."""

    topic: str
    follower: int
    partition: tuple[int, ...]
    lag: tuple[int | None, ...]
    """Records between the follower's end and the leader's; None where it has not fetched in this leader's term."""
    in_sync: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorMoved:
    """A partition of `__consumer_offsets` is loaded: its groups are served here."""

    partition: int
    coordinator: int
    previous_coordinator: int | None
    """None where this broker has not seen another."""
    coordinator_epoch: int
    groups: int
    load_ms: int
    """From the beginning of the term."""


ClusterFact: TypeAlias = LeaderChanged | IsrChanged | FollowerLagSampled | CoordinatorMoved
