"""The audit of brokers that workers share: one for each worker, of what has names with its prefix.

Who a connection belongs to, the first request says that names a topic, a group or a transactional id of a worker, or
its client id. What has no worker's name is not audited.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.testing.audit.auditor import Auditor
from ottla.testing.audit.findings import LogDamage
from ottla.testing.audit.recorder import Recorder
from ottla.testing.wire import ConnectionNotes, WireEvent, WireRing

if TYPE_CHECKING:
    from ottla.coordinator.events import OffsetToCommit
    from ottla.testing.hosting import HostedBrokers
    from ottla.testing.reading import BrokerReader

SEPARATOR: Final = "-"
"""It ends a prefix: `gw0-`."""
NAMES: Final = ("group_id", "transactional_id", "key")
LISTS: Final = ("topics", "topic_data", "groups", "coordinator_keys")


class WorkerAuditor(Auditor):
    """Of one worker."""

    def __init__(self, hosted: "HostedBrokers", reader: "BrokerReader", wire: WireRing, prefix: str) -> None:
        # Disks of a shared broker are nothing that a test may break.
        super().__init__(hosted, reader, wire, list[LogDamage], prefix)
        self.test = ""
        """The one that runs."""

    def _install(self, recorder: Recorder | None) -> None:
        del recorder
        self._wire.forget_audited(self.prefix)


class SharedAuditor(Auditor):
    """Gives each worker's what is its own."""

    def __init__(self, hosted: "HostedBrokers", reader: "BrokerReader", wire: WireRing) -> None:
        super().__init__(hosted, reader, wire, list[LogDamage])
        self._workers: dict[str, WorkerAuditor] = {}

    def worker(self, prefix: str) -> WorkerAuditor:
        """Its name with a dash. The same for the same prefix."""
        if prefix not in self._workers:
            self._workers[prefix] = WorkerAuditor(self._hosted, self._reader, self._wire, prefix)
        return self._workers[prefix]

    def begin(self, *, is_on: bool = True) -> None:
        """Each worker's begins by itself."""
        self._wire.record(self if is_on else None)

    def foreign_topics(self) -> list[str]:
        """Those that have the prefix of no worker."""
        return [name for name in self._reader.topic_names() if self._of(name) is None]

    # What passes the routes, as `RequestRecorder`.

    def asked(self, event: WireEvent, connection: Any, request: Any) -> None:
        notes = event.connection
        if not notes.worker:
            self._assign(notes, request)
        worker = self._workers.get(notes.worker)
        if worker is not None and worker.recorder is not None:
            worker.recorder.asked(event, connection, request)

    def answered(self, event: WireEvent, response: Any) -> None:
        worker = self._workers.get(event.connection.worker)
        if worker is not None and worker.recorder is not None:
            worker.recorder.answered(event, response)

    def unanswered(self, event: WireEvent) -> None:
        worker = self._workers.get(event.connection.worker)
        if worker is not None and worker.recorder is not None:
            worker.recorder.unanswered(event)

    def note_deletion(self, topic: str, index: int, before: int) -> None:
        for recorder in self._recorders_of(topic):
            recorder.note_deletion(topic, index, before)

    def note_forged(self, producer_id: int) -> None:
        for recorder in self._recorders():
            recorder.note_forged(producer_id)

    def note_offsets(self, group_id: str, offsets: "Sequence[OffsetToCommit]") -> None:
        for recorder in self._recorders_of(group_id):
            recorder.note_offsets(group_id, offsets)

    def _assign(self, notes: ConnectionNotes, request: Any) -> None:
        for name in (notes.client_id or "", *self._names_in(request)):
            worker = self._of(name)
            if worker is not None:
                notes.worker, notes.opened_in = worker.prefix, worker.test
                return

    def _names_in(self, request: Any) -> Iterator[str]:
        for field in NAMES:
            value: Any = getattr(request, field, None)
            if isinstance(value, str):
                yield value
        for field in LISTS:
            for each in getattr(request, field, None) or ():
                yield from self._names_of(each)

    def _names_of(self, each: Any) -> Iterator[str]:
        if isinstance(each, str):
            yield each
            return
        for field in ("name", "topic", "group_id"):
            value: Any = getattr(each, field, None)
            if isinstance(value, str):
                yield value
        topic_id: Any = getattr(each, "topic_id", None)
        if topic_id:
            yield self._reader.image.name_of(topic_id) or ""

    # What brokers report.

    def _recorders(self) -> Sequence[Recorder]:
        return [each.recorder for each in self._workers.values() if each.recorder is not None]

    def _recorders_of(self, name: str) -> Sequence[Recorder]:
        worker = self._of(name)
        return [] if worker is None or worker.recorder is None else [worker.recorder]

    def _of(self, name: str) -> WorkerAuditor | None:
        """Who has a topic or a group of this name."""
        word, dash, _ = name.partition(SEPARATOR)
        return self._workers.get(word + dash) if dash else None
