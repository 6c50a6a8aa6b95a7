"""What was seen of a broker and its clients, at the level of batches: what the judges get.

Numbers order what happened: of two requests the later one has the greater number. A partition is one incarnation of it:
a topic that is deleted and created again has others. A client is a client id and an address, for that is all that joins
the connections of one program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NO_PRODUCER_ID = -1
UNKNOWN_OFFSET = -1
NO_ANSWER = -2
"""In place of an error code: in doubt."""
READ_COMMITTED = 1
ALL_REPLICAS = -1

Client = tuple[str, str]
"""Client id and address."""


class SentBatch(NamedTuple):
    """A batch that a client sent, and what it was answered. A tuple, as there are very many."""

    crc: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    partition: int
    """Index of `AuditHistory.partitions`."""
    connection: int
    """Index of `AuditHistory.connections`."""
    acks: int
    at_ns: int
    answered: int = 0
    """The number of the last request before its answer; 0 without one."""
    offset: int = UNKNOWN_OFFSET
    """UNKNOWN_OFFSET where the answer has none."""
    error: int = NO_ANSWER

    @property
    def last_offset(self) -> int:
        return self.offset + self.last_offset_delta


class StoredBatch(NamedTuple):
    """A batch as it stands in a log."""

    base_offset: int
    last_offset: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool
    is_transactional: bool
    leader_epoch: int


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""


@dataclass(slots=True)
class SeenConnection:
    """A connection, and which of its answers have certainly left."""

    name: str
    client: Client
    confirmed: int = 0
    """Answers up to this number were given to a transport that was open afterwards."""

    def has_got(self, answered: int) -> bool:
        """Whether an answer of that number has certainly left."""
        return 0 < answered <= self.confirmed


@dataclass(slots=True)
class FinalLog:
    """A partition as its leader has it in the end."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    batches: Sequence[StoredBatch] = ()
    replicas: Mapping[int, Sequence[StoredBatch]] = field(default_factory=dict[int, Sequence[StoredBatch]])
    """Of followers, below the high watermark, by node."""
    aborted: Sequence[Aborted] = ()
    is_compacted: bool = False
    keeps_crcs: bool = True
    """Not where the broker stamps or compresses batches itself."""
    has_followers: bool = False
    may_lose: bool = False
    """A replica that was not in sync may lead (`unclean.leader.election.enable`)."""
    deleted_before: int = 0
    """By DeleteRecords."""
    expires_before_ms: int = 0
    """Retention may have removed what has a timestamp before that."""


@dataclass(slots=True)
class AuditedPartition:
    """A partition that requests were about, with its log in the end."""

    topic: str
    index: int
    begin_offset: int = 0
    """What is below was there before, and is not judged."""
    log: FinalLog | None = None
    """None: it was deleted, or has no leader that runs, and nothing can be said of it."""
    judges_sequences: bool = True
    """Not once the time has passed after which producers are forgotten."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class Delivered(NamedTuple):
    """A stretch of offsets that one client was given, in one or more answers that follow each other."""

    partition: int
    connection: int
    number: int
    """Of the first request."""
    at_ns: int
    isolation: int
    start: int
    end: int
    limit: int
    """The high watermark that the last answer named, or to a reader of committed records the last stable offset."""
    listed: frozenset[tuple[int, int]] = frozenset()
    """Producer id and first offset of the aborted transactions that each of the answers named."""


class Gap(NamedTuple):
    """Offsets that a fetch asked for and was not given, though it was given later ones."""

    partition: int
    connection: int
    at_ns: int
    start: int
    end: int


class Fell(NamedTuple):
    """A number that one connection got for a partition went back."""

    partition: int
    connection: int
    at_ns: int
    what: str
    before: int
    after: int


class Commit(NamedTuple):
    """One that was accepted."""

    number: int
    at_ns: int
    connection: int
    group: str
    member_id: str
    partition: int
    offset: int
    generation: int
    """-1 from who is no member."""
    generation_then: int
    """The one that the group was in; -1 where that was not seen."""
    answered: int = 0
    """The number of the last request before its answer."""


class Removed(NamedTuple):
    """A member that a group removed by itself."""

    group: str
    member_id: str
    client: Client
    cause: str


class Assigned(NamedTuple):
    """What a generation's members were given."""

    group: str
    generation: int
    protocol: str
    members: Mapping[str, Mapping[str, tuple[int, ...]]]
    """Partitions by topic, by member id."""


@dataclass(slots=True)
class AuditHistory:
    """All that is judged."""

    partitions: list[AuditedPartition] = field(default_factory=list[AuditedPartition])
    connections: list[SeenConnection] = field(default_factory=list[SeenConnection])
    batches: Sequence[SentBatch] = ()
    deliveries: list[Delivered] = field(default_factory=list[Delivered])
    gaps: list[Gap] = field(default_factory=list[Gap])
    fallen: list[Fell] = field(default_factory=list[Fell])
    commits: list[Commit] = field(default_factory=list[Commit])
    attempts: Mapping[tuple[str, int], Sequence[tuple[int, int]]] = field(
        default_factory=dict[tuple[str, int], Sequence[tuple[int, int]]]
    )
    """Number and offset of all commits, accepted or not, by group and partition."""
    offsets: Mapping[tuple[str, int], int] | None = None
    """What groups have committed in the end, by group and partition; None where that is not known."""
    forgotten: Mapping[str, int] = field(default_factory=dict[str, int])
    """By group: the number of the last request before its offsets were removed or set from outside."""
    set_offsets: Mapping[tuple[str, int], Sequence[tuple[int, int]]] = field(
        default_factory=dict[tuple[str, int], Sequence[tuple[int, int]]]
    )
    """What the test has committed without a request, by group and partition: the number of the last request before it,
    and the offset."""
    ends: Mapping[tuple[int, Client], int] = field(default_factory=dict[tuple[int, Client], int])
    """By partition and client: the greatest offset that ListOffsets answered."""
    members: Mapping[str, Mapping[str, Client]] = field(default_factory=dict[str, Mapping[str, Client]])
    """By group and member id."""
    shared: set[Client] = field(default_factory=set[Client])
    """Clients of which several members have the client id and the address."""
    transactional: set[str] = field(default_factory=set[str])
    """Groups whose offsets are committed in transactions, of which nothing is judged."""
    removed: list[Removed] = field(default_factory=list[Removed])
    assigned: list[Assigned] = field(default_factory=list[Assigned])
    partition_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """By topic, as it is in the end."""
    forged: set[int] = field(default_factory=set[int])
    """Producer ids that the test has written batches with by hand."""
    begin_ns: int = 0
    error_name: Callable[[int], str] = str
    is_final: Callable[[int], bool] = bool
    """Whether a producer does not try again after an error."""

    def at(self, at_ns: int, connection: int, text: str) -> str:
        """One line for an event."""
        return f"+{(at_ns - self.begin_ns) / 1_000_000:.1f} ms  {self.connections[connection].name}  {text}"

    def has_got(self, batch: SentBatch) -> bool:
        """Whether it was acknowledged: answered without error, by an answer that has left."""
        return batch.error == 0 and self.connections[batch.connection].has_got(batch.answered)

    def sent(self, batch: SentBatch) -> str:
        """One line for a batch with its outcome."""
        identity = f"crc {batch.crc:08x}"
        if batch.producer_id != NO_PRODUCER_ID:
            identity = f"producer {batch.producer_id}/{batch.producer_epoch} sequence {batch.base_sequence}"
        if batch.error == NO_ANSWER:
            outcome = "no answer"
        elif batch.error:
            outcome = self.error_name(batch.error)
        else:
            doubt = "" if self.has_got(batch) else ", in doubt"
            outcome = f"offsets {batch.offset} to {batch.last_offset}{doubt}"
        records = f"{batch.last_offset_delta + 1} records"
        text = f"Produce {self.partitions[batch.partition]} {identity}, {records}: {outcome}"
        return self.at(batch.at_ns, batch.connection, text)
