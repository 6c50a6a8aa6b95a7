"""The handle of brokers in another process. It looks and acts as that of brokers in this one, over HTTP; what HTTP does
not have is refused with a sentence.

A condition in Python is called in this process, in the thread that waits, every ten milliseconds.
"""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.coordinator.facts import Fact
from ottla.protocol.records.record import Record
from ottla.storage.checkpoints import uuid_from_text
from ottla.testing.audit.findings import AuditFinding
from ottla.testing.conditions import GivenCondition, Upto, offsets_upto
from ottla.testing.control.client import part
from ottla.testing.control.documents import (
    AuditDocument,
    ConnectionList,
    Emptied,
    LogChanges,
    Records,
    RecordsWritten,
    RestoreDocument,
    SeedDocument,
    SnapshotDocument,
    TopicDocument,
    TopicNames,
)
from ottla.testing.handle import RECORDS_MAX, Kafka
from ottla.testing.reading import TooManyRecordsError
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.brokers import RemoteBrokers, RemotePartition
from ottla.testing.remote.clock import RemoteClock
from ottla.testing.remote.groups import RemoteGroup, group_names
from ottla.testing.remote.surroundings import RemoteDisk, RemoteLinks
from ottla.testing.seeds.seed_loader import SeedReport
from ottla.testing.snapshots.snapshots import RestoreReport, SnapshotReport
from ottla.testing.topic_handle import KafkaTopic
from ottla.testing.usage import checks_usage
from ottla.testing.views import ConnectionView, LogChange, ProducerView, StoredRecord, TopicView, TransactionView
from ottla.testing.waits import DeadlineExceeded, deadline_factor
from ottla.testing.worker import NotRunningError
from ottla.testing.worlds import ResetReport
from ottla.testing.writing import GivenRecord, ProduceOptions, record_of

if TYPE_CHECKING:
    from ottla.testing.fact_stream import FactStream
    from ottla.testing.remote.faults import RemoteFaults
    from ottla.testing.step_lists.handles import KafkaScript
    from ottla.testing.step_lists.steps import GivenScript
    from ottla.testing.wire_capture.recording import KafkaWire

LOOKS_EVERY_S: Final = 0.01
BODY_BYTES: Final = 900_000
"""Of records in one request, where one alone is not more."""
ACKS: Final = {-1: "all", 1: "1", 0: "0"}


@checks_usage
class RemoteKafka(Kafka):
    def __init__(self, control: RemoteControl) -> None:
        self._control = control
        self._faults: RemoteFaults | None = None

    # The brokers.

    @property
    def bootstrap(self) -> str:
        return self._control.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._control.cluster_id

    @property
    def prefix(self) -> str:
        return self._control.prefix

    @property
    def node_ids(self) -> list[int]:
        return list(self._control.ask("GET", "/v1")["brokers"])

    @property
    def brokers(self) -> RemoteBrokers:
        return RemoteBrokers(self._control)

    @property
    def links(self) -> RemoteLinks:
        return RemoteLinks(self._control)

    def disk(self, node_id: int) -> RemoteDisk:
        self._control.check_node(node_id)
        return RemoteDisk(self._control, node_id)

    def partition(self, topic: str, index: int) -> RemotePartition:
        return RemotePartition(self._control, topic, index)

    @property
    def connections(self) -> list[ConnectionView]:
        found: ConnectionList = self._control.read(ConnectionList, "GET", "/v1/connections")
        return list(found.connections)

    @property
    def faults(self) -> "RemoteFaults":
        if self._faults is None:
            from ottla.testing.remote.faults import RemoteFaults

            self._faults = RemoteFaults(self._control)
        return self._faults

    def script(self, given: "GivenScript") -> "KafkaScript":
        from ottla.testing.remote.scripts import begun

        return begun(self._control, given)

    def audit(self) -> list[AuditFinding]:
        found: AuditDocument = self._control.read(AuditDocument, "GET", "/v1/audit")
        return [each.finding() for each in found.findings]

    @property
    def clock(self) -> RemoteClock:
        return RemoteClock(self._control)

    @property
    def wire(self) -> "KafkaWire":
        raise self._control.not_served("captures")

    # Topics and records.

    @property
    def topics(self) -> list[str]:
        found: TopicNames = self._control.read(TopicNames, "GET", "/v1/topics")
        return list(found.topics)

    def topic(self, name: str) -> "RemoteTopic":
        return RemoteTopic(self._control, name)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> "RemoteTopic":
        texts = {key: _scalar(value) for key, value in (configs or {}).items()}
        body = {"name": name, "partitions": partitions, "replication_factor": replication_factor, "configs": texts}
        self._control.ask("POST", "/v1/topics", body)
        return RemoteTopic(self._control, name)

    def produce(
        self, topic: str, records: Sequence[GivenRecord], **options: Unpack[ProduceOptions]
    ) -> list[tuple[int, int]]:
        """Many records are several requests: what one of them refuses, those before it do not undo."""
        if options.get("as_producer") is not None:
            raise self._control.not_served("as_producer")
        stamp, headers = options.get("timestamp"), options.get("headers", ())
        made = [_document(record_of(each, -1 if stamp is None else stamp, headers)) for each in records]
        body: dict[str, Any] = {
            "partition": options.get("partition"),
            "acks": ACKS[options.get("acks", -1)],
            "compression": options.get("compression", "none"),
        }
        places: list[tuple[int, int]] = []
        for chunk in _chunks(made):
            path = f"/v1/topics/{part(topic)}/records"
            written: RecordsWritten = self._control.read(RecordsWritten, "POST", path, {**body, "records": chunk})
            places += [(each.partition, each.offset) for each in written.records]
        return places

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
        isolation: str = "read_committed",
        limit: int = RECORDS_MAX,
    ) -> list[StoredRecord]:
        chosen = "".join(
            f"&{name}={each}" for name, each in (("partition", partition), ("stop", stop)) if each is not None
        )
        path = f"/v1/topics/{part(topic)}/records?start={start}&limit={limit}&isolation={part(isolation)}{chosen}"
        try:
            found: Records = self._control.read(Records, "GET", path)
        except NotRunningError as error:
            if "records" in str(error):
                raise TooManyRecordsError(str(error)) from None
            raise
        return [
            StoredRecord(
                topic=topic,
                partition=each.partition,
                offset=each.offset,
                timestamp=each.timestamp,
                key=each.key,
                value=each.value,
                headers=[(header.name, header.value) for header in each.headers],
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                sequence=each.sequence,
                leader_epoch=each.leader_epoch,
                is_control=each.is_control,
            )
            for each in found.records
        ]

    # Groups.

    @property
    def groups(self) -> list[str]:
        return group_names(self._control)

    def group(self, group_id: str) -> RemoteGroup:
        return RemoteGroup(self._control, group_id)

    @property
    def producers(self) -> list[ProducerView]:
        raise self._control.not_served("producers")

    @property
    def transactions(self) -> list[TransactionView]:
        raise self._control.not_served("transactions")

    # Waits.

    def wait(self, predicate: Callable[[Kafka], object], *, describe: str, within: float | None = None) -> None:
        condition = GivenCondition(lambda: predicate(self), describe)
        whole_s = (self._control.deadline_s if within is None else within) * deadline_factor()
        ends_at = time.monotonic() + whole_s
        while not condition.is_met():
            if time.monotonic() >= ends_at:
                raise DeadlineExceeded(condition.wanted, whole_s, condition.explain())
            time.sleep(LOOKS_EVERY_S)

    def wait_for_records(self, topic: str, count: int, *, within: float | None = None) -> None:
        self._control.wait("topic-records", within, topic=topic, count=count)

    def wait_until_consumed(
        self, topic: str, *, count: int | None = None, upto: Upto | None = None, within: float | None = None
    ) -> None:
        offsets = offsets_upto(count, upto)
        self._control.wait("topic-consumed", within, topic=topic, count=count, offsets=offsets)

    def wait_until_in_sync(self, topic: str, *, within: float | None = None) -> None:
        self._control.wait("topic-in-sync", within, topic=topic)

    def wait_until_leader(
        self, topic: str, partition: int, *, node: int | None = None, within: float | None = None
    ) -> None:
        self._control.wait("partition-leader", within, topic=topic, partition=partition, node=node)

    def wait_until_idle(self, *, ms: float = 50, within: float | None = None) -> None:
        self._control.wait("idle", within, ms=round(ms))

    def events(self, *kinds: type[Fact], within: float | None = None) -> "FactStream":
        del kinds, within
        raise self._control.not_served("events")

    # Isolation.

    def load(self, seed: str | Path | Mapping[str, Any]) -> SeedReport:
        """A seed that names files is refused: they are this process's."""
        from ottla.testing.seeds.seed_files import read_seed

        given = seed if isinstance(seed, Mapping) else read_seed(Path(seed))
        loaded: SeedDocument = self._control.read(SeedDocument, "PUT", "/v1/seed", given)
        return SeedReport(loaded.topics, loaded.records, loaded.groups)

    def reset(self) -> ResetReport:
        """The connections that were open are not in it."""
        done: Emptied = self._control.read(Emptied, "POST", "/v1/reset", {})
        return ResetReport(done.topics, done.groups, (), done.duration_ms)

    def snapshot(self, name: str) -> SnapshotReport:
        done: SnapshotDocument = self._control.read(SnapshotDocument, "PUT", f"/v1/snapshots/{part(name)}", {})
        return SnapshotReport(done.name, done.partitions, done.copied_bytes, done.duration_ms)

    def restore(self, name: str, *, members: str = "leave") -> RestoreReport:
        path = f"/v1/snapshots/{part(name)}/restore"
        done: RestoreDocument = self._control.read(RestoreDocument, "POST", path, {"members": members})
        return RestoreReport(done.name, done.topics, (), done.duration_ms)


@checks_usage
class RemoteTopic(KafkaTopic):
    def __init__(self, control: RemoteControl, name: str) -> None:
        self._control = control
        self.name = name

    @property
    def _path(self) -> str:
        return f"/v1/topics/{part(self.name)}"

    def describe(self) -> TopicView:
        found: TopicDocument = self._control.read(TopicDocument, "GET", self._path)
        return TopicView(found.name, uuid_from_text(found.topic_id), tuple(found.partitions), found.configs)

    @property
    def exists(self) -> bool:
        from ottla.protocol.errors import UnknownTopicOrPartition

        try:
            self.describe()
        except UnknownTopicOrPartition:
            return False
        return True

    def delete(self) -> None:
        self._control.ask("DELETE", self._path)

    def add_partitions(self, count: int) -> None:
        self._control.ask("PATCH", self._path, {"partitions": count})

    def delete_records(self, partition: int, *, before: int) -> None:
        self._control.ask("PATCH", self._path, {"delete_records_before": {str(partition): before}})

    def alter(self, configs: Mapping[str, object]) -> None:
        texts = {key: _scalar(value) for key, value in configs.items()}
        self._control.ask("PATCH", self._path, {"configs": texts})

    def roll(self) -> list[LogChange]:
        return self._changed_by("roll")

    def apply_retention(self) -> list[LogChange]:
        return self._changed_by("retention")

    def compact(self) -> list[LogChange]:
        return self._changed_by("compact")

    def _changed_by(self, job: str) -> list[LogChange]:
        done: LogChanges = self._control.read(LogChanges, "POST", f"{self._path}/{job}", {})
        return list(done.partitions)


def _document(record: Record) -> dict[str, Any]:
    """In base64, which is never more than a third longer."""
    return {
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [{"name": name, "value": _base64(value)} for name, value in record.headers],
        "timestamp": None if record.timestamp < 0 else record.timestamp,
    }


def _scalar(value: object) -> object:
    """As JSON has it."""
    return value if value is None or isinstance(value, bool) else str(value)


def _base64(value: bytes | None) -> dict[str, str] | None:
    return None if value is None else {"base64": b64encode(value).decode()}


def _chunks(documents: Sequence[dict[str, Any]]) -> Sequence[list[dict[str, Any]]]:
    """As many as have room in the body of one request."""
    chunks: list[list[dict[str, Any]]] = []
    size = BODY_BYTES
    for each in documents:
        own = len(json.dumps(each)) + 2
        if size + own > BODY_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(each)
        size += own
    return chunks
