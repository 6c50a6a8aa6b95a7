"""The audit of a testbed: what is recorded from the begin of a test on, and judged when somebody asks.

Without it routes note what they note anyway, and no more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.assembly import Parts
from ottla.broker.config.topic import log_config
from ottla.broker.server.close_reasons import CloseReason
from ottla.cluster.image import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE, MetadataImage
from ottla.cluster.updates import ImageUpdate
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.errors import ErrorCode
from ottla.storage.log_config import LogConfig
from ottla.testing.audit.findings import AuditFinding, FindingKind, LogDamage
from ottla.testing.audit.history import AuditedPartition, AuditHistory
from ottla.testing.audit.recorder import Recorder
from ottla.testing.wire import WireRing

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact
    from ottla.testing.faults.faults import Fault
    from ottla.testing.hosting import HostedBrokers
    from ottla.testing.reading import BrokerReader

MODES: Final = ("errors", "all", "off")
# A producer that gets one of these does not send the batch again.
FINAL_ERRORS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)

_OF_PRODUCE: Final = ("Produce", "InitProducerId")
_OF_FETCH: Final = ("Fetch", "ListOffsets")
_OF_COMMIT: Final = ("OffsetCommit", "OffsetFetch")
_OF_MEMBERS: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator")
_APIS: Final[Mapping[FindingKind, tuple[str, ...]]] = {
    FindingKind.B1: _OF_PRODUCE,
    FindingKind.B2: _OF_PRODUCE,
    FindingKind.B3: _OF_PRODUCE,
    FindingKind.B4: _OF_FETCH,
    FindingKind.B5: _OF_FETCH,
    FindingKind.B6: _OF_FETCH,
    FindingKind.B7: (*_OF_COMMIT, *_OF_MEMBERS),
    FindingKind.B9: ("Fetch",),
    FindingKind.P1: _OF_PRODUCE,
    FindingKind.P2: (*_OF_FETCH, *_OF_COMMIT),
    FindingKind.P3: (*_OF_FETCH, *_OF_COMMIT),
    FindingKind.P4: (*_OF_FETCH, *_OF_COMMIT, *_OF_MEMBERS),
    FindingKind.P5: _OF_FETCH,
    FindingKind.P6: ("EndTxn", "AddPartitionsToTxn", "WriteTxnMarkers"),
    FindingKind.P7: _OF_MEMBERS,
    FindingKind.P8: _OF_PRODUCE,
    FindingKind.P9: ("JoinGroup", "SyncGroup", "Metadata"),
}
# Logs that have lost something begin again at an offset, a sequence or a generation that they had before.
_OF_DAMAGE: Final = frozenset(
    {
        *(FindingKind.B1, FindingKind.B2, FindingKind.B3, FindingKind.B4, FindingKind.B5, FindingKind.B6),
        *(FindingKind.B7, FindingKind.B9, FindingKind.P3, FindingKind.P4, FindingKind.P6, FindingKind.P8),
    }
)


class Auditor:
    """Everything here runs on the loop of the brokers."""

    def __init__(
        self,
        hosted: "HostedBrokers",
        reader: "BrokerReader",
        wire: WireRing,
        damages: Callable[[], list[LogDamage]],
        prefix: str = "",
    ) -> None:
        """`damages`: what the test has done to logs. `prefix`: of the topics, groups and rules that it is about."""
        self.prefix = prefix
        self._hosted = hosted
        self._reader = reader
        self._wire = wire
        self._damages = damages
        self._began_wall_ms = 0
        self._expired_bytes_before = 0
        self.recorder: Recorder | None = None
        """None while nothing is recorded."""

    def begin(self, *, is_on: bool = True) -> None:
        """What came before is forgotten."""
        self.recorder = None
        if is_on:
            self.recorder = Recorder(self._wire, lambda: self._reader.image, self._ends(), self._configs_of)
        self._install(self.recorder)
        self._began_wall_ms = self._hosted.latest_wall_ms
        self._expired_bytes_before = self._expired_bytes()

    def _install(self, recorder: Recorder | None) -> None:
        self._wire.record(recorder)

    def _ends(self) -> dict[tuple[str, int], int]:
        """The log end offsets that there are now."""
        image = self._reader.image
        names = [name for name in image.topics if name not in INTERNAL_TOPICS and name.startswith(self.prefix)]
        topics = [image.topics[name] for name in names]
        places = [(topic.name, index) for topic in topics for index in range(len(topic.partitions))]
        leaders = ((place, self._reader.leader(*place)) for place in places)
        return {place: leader.log.log_end_offset for place, leader in leaders if leader is not None}

    def _configs_of(self, topic: str) -> set[LogConfig]:
        """What its logs go by now: of brokers that have not heard of a change, the former ones."""
        known = [(parts, parts.metadata.image.topic(topic)) for parts in self._hosted.parts().values()]
        return {log_config(found.configs, parts.runtime.config) for parts, found in known if found is not None}

    def attach(self, parts: Parts) -> None:
        """To a broker that has started."""
        parts.metadata.watchers.append(self._topics_changed)
        parts.metadata.publishers.append(_ConfigsInForce(parts, self._recorders))
        parts.group_loader.when_made.append(lambda made: made.timed_observers.append(self._observe))
        server = parts.server
        server.closing = partial(self._closing, server.closing)  # type: ignore[method-assign]
        server.lost = partial(self._lost, server.lost)  # type: ignore[method-assign]

    def findings(self) -> list[AuditFinding]:
        """All there are by now, with the rules that explain them; none while nothing is recorded."""
        if self.recorder is None:
            return []
        # Imported here, as the logs below: a first record needs no judge.
        from ottla.testing.audit.judge import judge

        faults = self._hosted.fault_host.faults_if_used
        rules = [] if faults is None else [each for each in faults.all_since_clear() if each.id.startswith(self.prefix)]
        found = [explained(each, rules) for each in judge(self.history(self.recorder))]
        damages = self._damages()
        return [self._explained_by_damage(each, damages) for each in found] if damages else found

    def _explained_by_damage(self, finding: AuditFinding, damages: Iterable[LogDamage]) -> AuditFinding:
        """By the first to a log of the partition, or of the coordinator that keeps what it is about."""
        if finding.explained_by is None and finding.kind in _OF_DAMAGE:
            logs = {*finding.where.split(), *self._logs_of_coordinators(finding)}
            for damage in damages:
                if logs & damage.partitions:
                    return finding.explained(damage.cause)
        return finding

    def _logs_of_coordinators(self, finding: AuditFinding) -> Iterator[str]:
        topics = self._reader.image.topics
        words = finding.where.split()
        if len(words) > 1 and CONSUMER_OFFSETS in topics:
            yield f"{CONSUMER_OFFSETS}-{partition_for(words[0], len(topics[CONSUMER_OFFSETS].partitions))}"
        if finding.kind is FindingKind.P6 and TRANSACTION_STATE in topics:
            yield from (f"{TRANSACTION_STATE}-{index}" for index in range(len(topics[TRANSACTION_STATE].partitions)))

    def unjudged(self) -> str | None:
        """What the findings do not cover, in a sentence; None: nothing was left out."""
        recorder = self.recorder
        if recorder is None:
            return None
        sentences: list[str] = []
        if recorder.batches.overflow:
            kept = len(recorder.batches)
            sentences.append(f"{recorder.batches.overflow} batches after the first {kept} were not kept")
        if recorder.overflow:
            kept = len(recorder.connections)
            sentences.append(f"{recorder.overflow} connections after the first {kept} were not recorded")
        if recorder.partitions.is_full:
            sentences.append(f"partitions after the first {len(recorder.partitions.seen)} are not judged")
        if not recorder.keeps_commits:
            sentences.append("too much was fetched or committed to keep it: commits are not judged")
        shared = sorted({client_id for client_id, _ in recorder.commits.shared})
        if shared:
            sentences.append(f"several members have the client id {', '.join(shared)}: their commits are not judged")
        return "; ".join(sentences) or None

    def history(self, recorder: Recorder) -> AuditHistory:
        recorder.note_answers()
        recorder.confirm_open()
        image = self._reader.image
        fetches, commits = recorder.fetches, recorder.commits
        # Of what is not kept whole nothing is judged: what is missing may be among the rest.
        are_whole = recorder.keeps_commits
        batches = list(recorder.batches)
        if recorder.has_disorder:
            batches.sort(key=lambda batch: batch.at_ns)
        return AuditHistory(
            partitions=self._partitions(recorder),
            connections=recorder.connections,
            batches=batches,
            deliveries=[] if recorder.overflow or fetches.overflow else fetches.deliveries,
            gaps=fetches.gaps,
            fallen=fetches.fallen,
            commits=commits.commits if are_whole else [],
            attempts=commits.attempts,
            offsets=self._offsets(recorder),
            forgotten=commits.forgotten,
            set_offsets=commits.set_offsets,
            ends=fetches.ends,
            members=commits.members if are_whole else {},
            shared=commits.shared,
            transactional=commits.transactional,
            removed=commits.removed,
            assigned=commits.assigned,
            partition_counts={name: len(topic.partitions) for name, topic in image.topics.items()},
            forged=recorder.forged,
            begin_ns=recorder.begin_ns,
            error_name=error_name,
            is_final=FINAL_ERRORS.__contains__,
        )

    def _partitions(self, recorder: Recorder) -> list[AuditedPartition]:
        from ottla.testing.audit.final_logs import final_log

        current = {number: place for place, number in recorder.partitions.current().items()}
        wall_ms = self._hosted.latest_wall_ms
        all_parts = list(self._hosted.parts().values())
        seen: list[AuditedPartition] = []
        for number, partition in enumerate(recorder.partitions.seen):
            leader = self._reader.leader(*current[number]) if number in current else None
            if leader is None:
                seen.append(partition)
                continue
            configs = recorder.partitions.configs[partition.topic] | {leader.log.config}
            log = final_log(
                leader,
                all_parts,
                partition.begin_offset,
                configs=configs,
                deleted_before=recorder.deleted_before.get(current[number], 0),
                now_wall_ms=wall_ms,
                has_expired=self._expired_bytes() != self._expired_bytes_before,
            )
            judges = wall_ms - self._began_wall_ms < min(each.producer_id_expiration_ms for each in configs)
            seen.append(replace(partition, log=log, judges_sequences=judges))
        return seen

    def _offsets(self, recorder: Recorder) -> dict[tuple[str, int], int] | None:
        if self._reader.coordinators_missing():
            return None
        numbers = recorder.partitions.current()
        return {
            (group, numbers[place]): offset
            for group in {commit.group for commit in recorder.commits.commits}
            for place, offset in self._reader.group(group).offsets.items()
            if place in numbers
        }

    def _expired_bytes(self) -> int:
        return sum(parts.log_manager.retention_deleted_bytes for parts in self._hosted.parts().values())

    # What brokers report.

    def _topics_changed(self, before: MetadataImage, update: ImageUpdate) -> None:
        recorders = self._recorders()
        if not recorders:
            return
        now = update.image
        gone = [
            name
            for name in update.topics
            if (old := before.topic(name)) is not None
            and ((new := now.topic(name)) is None or new.topic_id != old.topic_id)
        ]
        for recorder in recorders if gone else ():
            recorder.partitions.deleted(gone)

    def _observe(self, fact: "Fact", now_ms: int) -> None:
        for recorder in self._recorders_of(getattr(fact, "group_id", "")):
            recorder.commits.observe(fact, now_ms)

    def _closing(self, closing: Callable[..., None], connection: Any, reason: CloseReason, why: str | None) -> None:
        for recorder in self._recorders():
            recorder.ended(connection, reason)
        closing(connection, reason, why)

    def _lost(self, lost: Callable[..., None], connection: Any) -> None:
        for recorder in self._recorders():
            recorder.ended(connection, CloseReason.LOST)
        lost(connection)

    def _recorders(self) -> Sequence[Recorder]:
        """Those that record now."""
        return [] if self.recorder is None else [self.recorder]

    def _recorders_of(self, name: str) -> Sequence[Recorder]:
        """Of a group."""
        del name
        return self._recorders()


class _ConfigsInForce:
    """The last to hear of an update of the metadata: topics have the configs that it brings."""

    def __init__(self, parts: Parts, recorders: Callable[[], Sequence[Recorder]]) -> None:
        self._parts = parts
        self._recorders = recorders
        self._default = self._config_of({})

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:
        del before
        default = self._config_of({})
        is_default_altered, self._default = default != self._default, default
        for recorder in self._recorders():
            for name, known in recorder.partitions.configs.items():
                topic = update.image.topic(name)
                if topic is not None and (is_default_altered or name in update.topics):
                    known.add(self._config_of(topic.configs))

    def _config_of(self, overrides: Mapping[str, str]) -> LogConfig:
        return log_config(overrides, self._parts.runtime.config)


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def summary(findings: Iterable[AuditFinding], unjudged: str | None = None) -> list[str]:
    """Lines for people."""
    lines = [line for finding in findings for line in finding.lines()]
    return lines if unjudged is None else [*lines, unjudged]


def leftover(kind: FindingKind, sentences: Iterable[str]) -> list[AuditFinding]:
    """Findings of what a test has left behind."""
    return [AuditFinding(kind, sentence) for sentence in sentences]


def explained(finding: AuditFinding, faults: "Iterable[Fault]") -> AuditFinding:
    """The finding with the first such rule, or as it was."""
    apis = _APIS.get(finding.kind, ())
    places = finding.where.split()
    for fault in faults:
        for hit in fault.hit_log:
            is_about_it = not hit.units or any(unit in places for unit in hit.units)
            if hit.api in apis and (is_about_it or (finding.client_id and hit.client_id == finding.client_id)):
                return finding.explained(f"fault rule {fault.id!r}")
    return finding
