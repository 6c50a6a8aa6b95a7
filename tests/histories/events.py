"""What clients sent and received, one small frozen value each.

Times are microseconds of one clock that never goes back and that all clients of a history share: the machine's
monotonic clock for processes on one machine, virtual time in a simulation. Only these times order events; the order
in which they are handed over counts for the events of one client in the same microsecond and for nothing else.

A record is known by its `value`, a text that is sent once in a whole history. A commit is known by its `commit_id`, a
text that travels as the commit's metadata. What has no outcome is in doubt: it may have happened, or may still.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

ALL_IN_SYNC_REPLICAS = -1
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer was asked to write a record.

    `number` rises with every record of one producer to one partition: the order in which they must stand in the log
    if the producer is idempotent. A producer that starts again is another producer.
    """

    at_us: int
    producer: str
    topic: str
    partition: int
    number: int
    value: str
    idempotent: bool = True
    acks: int = ALL_IN_SYNC_REPLICAS


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The record was written. `offset` is UNKNOWN_OFFSET where the answer had none, as for a repeated batch that is too
    old to be known."""

    at_us: int
    value: str
    offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The record was certainly not written by any attempt. A timeout, a lost connection and
    NOT_ENOUGH_REPLICAS_AFTER_APPEND are no refusals: report nothing, and the record stays in doubt."""

    at_us: int
    value: str


@dataclass(frozen=True, slots=True)
class Read:
    """A consumer was handed a record. `session` names a stretch of reading without a seek or a new assignment: within
    one, offsets are consecutive."""

    at_us: int
    consumer: str
    session: int
    topic: str
    partition: int
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class EndSeen:
    """A client asked for the latest offset of a partition and got `offset`: the high watermark."""

    sent_us: int
    at_us: int
    client: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommitSent:
    at_us: int
    group: str
    topic: str
    partition: int
    offset: int
    commit_id: str


@dataclass(frozen=True, slots=True)
class CommitAcknowledged:
    at_us: int
    commit_id: str


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """No attempt at this commit was or will be applied, such as one that was sent once and answered
    ILLEGAL_GENERATION."""

    at_us: int
    commit_id: str


@dataclass(frozen=True, slots=True)
class CommitRead:
    """A client read a committed offset, -1 for none. `commit_id` is None where the client's
    library does not return the metadata: the read then speaks of a commit only if its offset was committed once."""

    sent_us: int
    at_us: int
    group: str
    topic: str
    partition: int
    offset: int
    commit_id: str | None = None


Event = Sent | Acknowledged | Refused | Read | EndSeen | CommitSent | CommitAcknowledged | CommitRefused | CommitRead
EVENTS: tuple[type[Event], ...] = (
    Sent,
    Acknowledged,
    Refused,
    Read,
    EndSeen,
    CommitSent,
    CommitAcknowledged,
    CommitRefused,
    CommitRead,
)
NONE_COMMITTED = -1


@dataclass(frozen=True, slots=True)
class FinalLog:
    """A partition as it was read from its start to its end when all was over: (offset, value), in order of offset."""

    log_start_offset: int
    records: tuple[tuple[int, str], ...]
    writers: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By offset, as far as that is known: the producer id and epoch that the record was written with."""
