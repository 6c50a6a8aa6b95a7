"""What the audit keeps of requests and answers, as they pass the routes, and of the facts of groups.

An answer counts as given when the transport was still open at a later read event of its connection, with nothing parked
before it, or when the client has closed the connection in order. Answers to Produce are looked at when the event is
over that wrote their batches: a write that fails changes them. Until then a batch is not written down, unless its
request is parked. What fault rules drop, or end the connection for, never passes here as an answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.server.close_reasons import CloseReason
from ottla.cluster.image import MetadataImage
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.storage.log_config import LogConfig
from ottla.testing.audit.committing import CommitNotes
from ottla.testing.audit.fetching import FetchNotes
from ottla.testing.audit.history import SeenConnection
from ottla.testing.audit.ledger import (
    HEADER,
    TOO_MANY,
    AnsweredBatch,
    AuditedConnection,
    Notes,
    Partitions,
    Sent,
    SentBatches,
)
from ottla.testing.wire import ConnectionNotes, WireEvent, WireRing

if TYPE_CHECKING:
    from ottla.coordinator.events import OffsetToCommit

PRODUCE: Final = "Produce"
ALL: Final = -1
NOT_RECORDED: Final = -1
NOTHING: Final[Notes] = {}
ALL_RECORDS: Final = 1 << 62
CONNECTIONS_MAX: Final = 50_000
"""What follows on others is not judged."""


class _Rows(list[int]):
    """The positions of batches that were written down before their answers."""


_Produced = Sent | list[Sent] | _Rows | None
"""What a Produce request sent: one batch, or several. None when it has been noted, or is in doubt."""


class Recorder:
    """Everything here runs on the loop of the brokers."""

    def __init__(
        self,
        wire: WireRing,
        image: Callable[[], MetadataImage],
        begin_offsets: Mapping[tuple[str, int], int],
        configs_of: Callable[[str], Iterable[LogConfig]],
    ) -> None:
        """`image`: what exists now. `begin_offsets`: where the logs that exist already end. `configs_of`: what the logs
        of a topic go by now, on any broker."""
        self.begin_ns = monotonic_ns()
        self._wire = wire
        self.partitions = Partitions(image, begin_offsets, configs_of)
        self.batches = SentBatches()
        self.connections: list[SeenConnection] = []
        self.overflow = 0
        """How many connections came after the last one that is recorded."""
        self.fetches = FetchNotes(self.partitions.number, self._count)
        self.commits = CommitNotes(self.partitions.number, self._count)
        self.deleted_before: dict[tuple[str, int], int] = {}
        self.forged: set[int] = set()
        self._audited: dict[int, AuditedConnection] = {}
        # Produce requests whose batches are being written, with the number of the last request before the answer, and
        # the answer.
        self._answers: list[tuple[WireEvent, int, Any]] = []
        self._answers_ns = 0
        self.has_disorder = False
        """Whether batches were written down before earlier ones."""
        self._askers: Notes = {
            PRODUCE: self._produced,
            "Fetch": self.fetches.asked,
            "ListOffsets": self.fetches.asked_ends,
            "DeleteRecords": self._deleting,
            "OffsetCommit": self.commits.asked,
            "TxnOffsetCommit": self.commits.in_transaction,
        }
        self._answerers: Notes = {
            "Fetch": self.fetches.answered,
            "ListOffsets": self.fetches.answered_ends,
            "OffsetCommit": self.commits.answered,
        }
        # Of connections that are not recorded: what they delete is not lost.
        self._askers_beyond: Notes = {"DeleteRecords": self._deleting}

    @property
    def keeps_commits(self) -> bool:
        """All of them, and all that was fetched before them."""
        return not (self.overflow or self.fetches.overflow or self.commits.overflow)

    def _count(self) -> int:
        """Of requests so far."""
        return self._wire.count

    # What passes the routes.

    def asked(self, event: WireEvent, connection: Any, request: Any) -> None:
        audited: AuditedConnection | None = event.connection.audited
        if audited is None:
            audited = self._new_connection(event.connection, connection)
        if connection.last_event_ns != audited.event_ns:
            self._begin_event(audited, connection)
        asker = audited.askers.get(event.api)
        if asker is not None:
            asker(audited, event, request)

    def answered(self, event: WireEvent, response: Any) -> None:
        audited: AuditedConnection | None = event.connection.audited
        if audited is None or event.audit is None or event.at_ns < self.begin_ns:
            return
        if event.api == PRODUCE:
            audited.last = answered = self._wire.count
            self._answers.append((event, answered, response))
            self._answers_ns = audited.event_ns
            return
        answerer = audited.answerers.get(event.api)
        if answerer is not None:
            audited.last = self._wire.count
            answerer(audited, event, response)

    def _begin_event(self, audited: AuditedConnection, connection: Any) -> None:
        """Of a read event of a connection, its first request: what was answered before has left, if nothing is parked
        in front of it."""
        audited.event_ns = now_ns = connection.last_event_ns
        if self._answers and now_ns != self._answers_ns:
            self.note_answers()
        if audited.seen.confirmed != audited.last and not connection.parked:
            audited.seen.confirmed = audited.last

    def _new_connection(self, notes: ConnectionNotes, connection: Any) -> AuditedConnection:
        seen = SeenConnection(notes.name, (notes.client_id or "", connection.peer_host))
        askers, answerers = (NOTHING, NOTHING) if notes.is_of_broker else (self._askers, self._answerers)
        if len(self.connections) >= CONNECTIONS_MAX:
            self.overflow += 1
            beyond = notes.audited = AuditedConnection(NOT_RECORDED, connection, seen, self._askers_beyond, NOTHING)
            return beyond
        audited = notes.audited = AuditedConnection(len(self.connections), connection, seen, askers, answerers)
        self.connections.append(seen)
        self._audited[id(connection)] = audited
        return audited

    def _produced(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        try:
            # As nearly always with small requests: one batch, for a partition that is known.
            (topic,) = request.topic_data
            (data,) = topic.partition_data
            number = self.partitions.numbers[topic.name or topic.topic_id, data.index]
        except (ValueError, KeyError):
            self._produced_several(audited, event, request)
            return
        if number >= 0 and data.records is not None and len(data.records) >= BATCH_HEADER_SIZE:
            event.audit = data.records[HEADER].tobytes(), number, audited.number, request.acks, event.at_ns
        else:
            self._produced_several(audited, event, request)

    def _produced_several(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        is_whole = True
        sent: list[Sent] = []
        for topic in request.topic_data:
            name = topic.name or topic.topic_id
            for data in topic.partition_data:
                number = self.partitions.number(name, data.index)
                records = data.records
                if number >= 0 and records is not None and len(records) >= BATCH_HEADER_SIZE:
                    sent.append((records[HEADER].tobytes(), number, audited.number, request.acks, event.at_ns))
                else:
                    is_whole = False
        event.audit = sent
        if not is_whole:
            # Its answer is not looked at: what it sent is in doubt.
            self.unanswered(event)
            event.audit = None

    def unanswered(self, event: WireEvent) -> None:
        if event.api == PRODUCE and event.audit is not None:
            # In which the answer is filled in if it comes.
            event.audit = self._rows_of(event.audit)
            self.has_disorder |= bool(self._answers)

    def note_answers(self) -> None:
        """Answers whose batches have been written, or not, by now."""
        answers, self._answers = self._answers, []
        answered_ones: list[AnsweredBatch] = []
        append = answered_ones.append
        for event, answered, response in answers:
            # Of one that waited for its turn behind another one, and was noted twice, there is nothing any more.
            asked: _Produced = event.audit
            event.audit = None
            try:
                (topic,) = response.responses
                (each,) = topic.partition_responses
            except ValueError:
                each = None
            if each is not None and isinstance(asked, tuple):
                append((*asked, answered, each.base_offset, each.error_code))
            elif asked is not None:
                self.batches.extend(answered_ones)
                answered_ones.clear()
                self._fill_in(asked if isinstance(asked, _Rows) else self._rows_of(asked), answered, response)
        self.batches.extend(answered_ones)

    def _rows_of(self, asked: "Sent | list[Sent]") -> "_Rows":
        """Those of its batches, without an answer yet."""
        return _Rows(self.batches.add(each) for each in (asked if isinstance(asked, list) else [asked]))

    def _fill_in(self, rows: "_Rows", answered: int, response: Any) -> None:
        """Where there is an answer to each batch, in their order: a partition that is named twice gets one."""
        seen, partition_at = self.partitions.seen, self.batches.partition_at
        given = [each for topic in response.responses for each in topic.partition_responses]
        if TOO_MANY not in rows and [each.index for each in given] == [seen[partition_at(row)].index for row in rows]:
            for row, each in zip(rows, given, strict=True):
                self.batches.answer(row, answered, each.base_offset, each.error_code)

    def _deleting(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        del audited, event
        for topic in request.topics:
            for each in topic.partitions:
                self.note_deletion(topic.name, each.partition_index, each.offset)

    def note_deletion(self, topic: str, index: int, before: int) -> None:
        """Somebody wants the records below an offset deleted; -1 for all."""
        place = topic, index
        end = ALL_RECORDS if before == ALL else before
        self.deleted_before[place] = max(self.deleted_before.get(place, 0), end)

    def note_forged(self, producer_id: int) -> None:
        """The test writes in the name of a producer, whose sequences mean nothing then."""
        self.forged.add(producer_id)

    def note_offsets(self, group_id: str, offsets: "Sequence[OffsetToCommit]") -> None:
        """The test commits them without a request."""
        self.commits.set_by_test(group_id, offsets)

    def ended(self, connection: Any, reason: CloseReason) -> None:
        """A connection is closed; with its client in order, all answers that have left have been given."""
        audited = self._audited.pop(id(connection), None)
        if audited is not None and reason is CloseReason.CLIENT and has_sent_all(connection):
            audited.seen.confirmed = audited.last

    def confirm_open(self) -> None:
        """What was given to transports that are open now, and that nothing waits in, has been given."""
        for audited in self._audited.values():
            if not audited.connection.is_closed and has_sent_all(audited.connection):
                audited.seen.confirmed = audited.last


def has_sent_all(connection: Any) -> bool:
    transport = connection.transport
    return transport is not None and not connection.parked and not transport.get_write_buffer_size()
