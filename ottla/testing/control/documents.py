"""What is answered over HTTP, beside what `ottla.testing.views` has. Times are milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ottla.storage.checkpoints import uuid_to_text
from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.control.questions import HeaderBody
from ottla.testing.control.script_documents import ScriptDocument
from ottla.testing.faults.faults import Fault
from ottla.testing.faults.rule_values import RuleError
from ottla.testing.faults.state import Hit
from ottla.testing.reading import BrokerReader
from ottla.testing.views import (
    ConnectionView,
    GroupRebalance,
    GroupView,
    LogChange,
    MemberView,
    PartitionView,
    StoredRecord,
    TopicView,
)


@dataclass(frozen=True, slots=True)
class About:
    version: str
    bootstrap: str
    cluster_id: str
    brokers: Sequence[int]
    """Those that run."""
    fault_seed: int
    clock: Literal["real", "moved"]
    """`moved`: it was frozen, set or advanced since the last reset."""
    features: Sequence[str]
    not_served: Sequence[str]


@dataclass(frozen=True, slots=True)
class Emptied:
    topics: int
    groups: int
    leaks: Sequence[str]
    """Clients that were cut."""
    duration_ms: float


@dataclass(frozen=True, slots=True)
class TopicNames:
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class TopicDocument:
    name: str
    topic_id: str
    configs: Mapping[str, str]
    partitions: Sequence[PartitionView]

    @classmethod
    def of(cls, view: TopicView) -> "TopicDocument":
        return cls(view.name, uuid_to_text(view.topic_id), view.configs, view.partitions)


@dataclass(frozen=True, slots=True)
class RecordDocument:
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[HeaderBody]
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    is_control: bool

    @classmethod
    def of(cls, record: StoredRecord) -> "RecordDocument":
        headers = [HeaderBody(name=_text(name), value=value) for name, value in record.headers]
        return cls(
            record.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            headers,
            record.producer_id,
            record.producer_epoch,
            record.sequence,
            record.leader_epoch,
            record.is_control,
        )


def _text(name: str) -> str:
    """Keys of headers that are not UTF-8 have lone surrogates, which are no JSON."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Records:
    records: Sequence[RecordDocument]


@dataclass(frozen=True, slots=True)
class WrittenAt:
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class RecordsWritten:
    records: Sequence[WrittenAt]


@dataclass(frozen=True, slots=True)
class CommittedAt:
    topic: str
    partition: int
    offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class GroupDocument:
    group_id: str
    state: str
    generation: int
    protocol: str | None
    leader: str | None
    members: Sequence[MemberView]
    offsets: Sequence[CommittedAt]

    @classmethod
    def of(cls, view: GroupView, reader: BrokerReader) -> "GroupDocument":
        lags = {topic: reader.lag(view, topic) for topic, _ in view.offsets}
        offsets = [
            CommittedAt(topic, partition, offset, lags[topic].get(partition, 0))
            for (topic, partition), offset in view.offsets.items()
        ]
        return cls(view.group_id, view.state, view.generation, view.protocol, view.leader, view.members, offsets)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    group_id: str
    state: str
    generation: int
    members: int


@dataclass(frozen=True, slots=True)
class GroupList:
    groups: Sequence[GroupSummary]


@dataclass(frozen=True, slots=True)
class RebalanceList:
    rebalances: Sequence[GroupRebalance]


@dataclass(frozen=True, slots=True)
class Evicted:
    member_id: str
    group: GroupDocument


@dataclass(frozen=True, slots=True)
class LogChanges:
    partitions: Sequence[LogChange]


@dataclass(frozen=True, slots=True)
class FaultDocument:
    id: str
    rule: Mapping[str, Any] | None
    """None of one that is of a function in Python."""
    hits: int
    held: int
    is_exhausted: bool
    near_misses: Mapping[str, int]
    text: str
    hit_log: Sequence[Hit] = ()

    @classmethod
    def of(cls, fault: Fault, hits_shown: int = 0) -> "FaultDocument":
        try:
            rule = fault.to_json()
        except RuleError:
            rule = None
        return cls(
            fault.id,
            rule,
            fault.hits,
            fault.held,
            fault.is_exhausted,
            fault.near_misses,
            fault.explain(),
            fault.hit_log[-hits_shown:] if hits_shown else (),
        )


@dataclass(frozen=True, slots=True)
class FaultList:
    faults: Sequence[FaultDocument]


@dataclass(frozen=True, slots=True)
class Released:
    released: int


@dataclass(frozen=True, slots=True)
class RunningBrokers:
    brokers: Sequence[int]
    """Those that run now."""


@dataclass(frozen=True, slots=True)
class WaitMet:
    waited_ms: float
    state: str
    """In words."""
    group: GroupDocument | None = None
    topic: TopicDocument | None = None
    fault: FaultDocument | None = None
    script: ScriptDocument | None = None


@dataclass(frozen=True, slots=True)
class ReportSection:
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ControlReport:
    test: str
    sections: Sequence[ReportSection]


@dataclass(frozen=True, slots=True)
class FindingDocument:
    kind: str
    """As in docs/audit.md: B of the broker, P of the programs."""
    what: str
    where: str
    client_id: str
    events: Sequence[str]
    explained_by: str | None

    @classmethod
    def of(cls, finding: AuditFinding) -> "FindingDocument":
        return cls(
            finding.kind.name,
            finding.what,
            finding.where,
            finding.client_id,
            finding.events,
            finding.explained_by,
        )

    def finding(self) -> AuditFinding:
        return AuditFinding(
            FindingKind[self.kind], self.what, self.where, self.client_id, tuple(self.events), self.explained_by
        )


@dataclass(frozen=True, slots=True)
class TestEnd:
    name: str
    leaks: Sequence[str]
    """Connections that are still open."""
    unused_faults: Sequence[str]
    findings: Sequence[FindingDocument] = ()
    """Of the audit, since it began last."""
    left: Sequence[str] = ()
    """Of the groups that were asked for, those that have members."""


@dataclass(frozen=True, slots=True)
class PendingDocument:
    node: int
    kind: str
    what: str
    at: str
    in_ms: int


@dataclass(frozen=True, slots=True)
class ClockDocument:
    now: str
    is_real: bool
    is_frozen: bool
    rate: float
    pending: Sequence[PendingDocument]
    included: Sequence[str]
    """What goes by it beside: tokens, replication."""


@dataclass(frozen=True, slots=True)
class FiredDocument:
    at: str
    node: int
    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class FiredList:
    fired: Sequence[FiredDocument]
    """In their order."""


@dataclass(frozen=True, slots=True)
class AuditDocument:
    findings: Sequence[FindingDocument]
    unjudged: str | None
    """What they do not cover, in a sentence."""


@dataclass(frozen=True, slots=True)
class ConnectionList:
    connections: Sequence[ConnectionView]


@dataclass(frozen=True, slots=True)
class SnapshotNames:
    snapshots: Sequence[str]


@dataclass(frozen=True, slots=True)
class SnapshotDocument:
    name: str
    partitions: int
    copied_bytes: int
    """Of active segments; sealed ones are shared with the log."""
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RestoreDocument:
    name: str
    topics: int
    """Those that were not as in the snapshot."""
    leaks: Sequence[str]
    """Clients that were cut."""
    duration_ms: float


@dataclass(frozen=True, slots=True)
class SeedDocument:
    topics: int
    records: int
    groups: int
