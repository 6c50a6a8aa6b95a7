"""What can happen to the groups of one `__consumer_offsets` partition: requests, timers, chores.

Requests know no versions: where Kafka's behaviour depends on one, a flag says what the client can understand.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla.coordinator.runtime.effects import ProducerIdAndEpoch
from ottla.protocol.primitives import Buffer


class JoinGroup(NamedTuple):
    token: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """JoinGroup v0 has none: hand in the session timeout."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), in the client's order of preference."""
    require_known_member_id: bool = False
    """Version 4 and later: a dynamic member is first given an id with MEMBER_ID_REQUIRED (KIP-394)."""
    supports_skip_assignment: bool = False
    """Version 9 and later: a restarted static leader learns that it need not assign (KIP-814)."""
    reason: str | None = None
    """Why the client says it joins (version 8 and later, KIP-800)."""


class SyncGroup(NamedTuple):
    token: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, Buffer], ...] = ()
    """(member id, assignment); only the leader's counts. Views keep the frame alive in which they arrived."""
    requires_protocol: bool = False
    """Version 5 and later: protocol type and name must both be given."""


class Heartbeat(NamedTuple):
    """A named tuple and not a dataclass: heartbeats are most of a quiet group's requests, and this is made in a third
    of the time."""

    token: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroup(NamedTuple):
    token: int
    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class CommitOffsets(NamedTuple):
    token: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]
    retention_time_ms: int = -1
    """Versions 2 to 4; -1 leaves expiry to the broker's retention."""
    supports_group_id_not_found: bool = False
    """Version 9 and later: an unknown group is GROUP_ID_NOT_FOUND rather than ILLEGAL_GENERATION."""
    producer: ProducerIdAndEpoch | None = None
    """TxnOffsetCommit: in whose transaction. The offsets show once the transaction is committed."""
    guard: Any = None
    """What the log wants to see of the first batch of a transaction. Only the shell looks at it."""


class FetchOffsets(NamedTuple):
    token: int
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    """(topic, partitions); None asks for every partition that has an offset."""
    require_stable: bool = False


class DescribeGroup(NamedTuple):
    token: int
    group_id: str


class ListGroups(NamedTuple):
    token: int
    states: tuple[str, ...] = ()
    """Names in any letter case; empty means all."""
    types: tuple[str, ...] = ()


class DeleteGroup(NamedTuple):
    token: int
    group_id: str


class DeleteOffsets(NamedTuple):
    token: int
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """Time for the round of `offsets.retention.check.interval.ms`."""


class RequestRebalance(NamedTuple):
    """Asked for within the process of the broker; no request of a client does that."""

    group_id: str


class TopicsDeleted(NamedTuple):
    topics: tuple[str, ...]


GroupRequest: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DescribeGroup
    | DeleteGroup
    | DeleteOffsets
)
Request: TypeAlias = GroupRequest | ListGroups
