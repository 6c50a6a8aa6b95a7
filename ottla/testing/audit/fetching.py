"""What clients were given by Fetch, and what ListOffsets answered: stretches of offsets, gaps, numbers that fell."""

from collections.abc import Callable
from typing import Any, Final

from ottla.protocol.records.batch import iterate_batches
from ottla.testing.audit.history import READ_COMMITTED, Client, Delivered, Fell, Gap
from ottla.testing.audit.ledger import AuditedConnection
from ottla.testing.wire import WireEvent

NO_REPLICA: Final = -1
KEPT_MAX: Final = 200_000
"""Of stretches: a client that seeks for ever makes no more."""


class FetchNotes:
    def __init__(self, number_of: Callable[[str | bytes, int], int], count: Callable[[], int]) -> None:
        """`number_of` a partition, -1 for one that is not audited; `count`: how many requests came so far."""
        self._number_of = number_of
        self._count = count
        self.deliveries: list[Delivered] = []
        self.overflow = 0
        """How many stretches came after the last one that is kept."""
        self.gaps: list[Gap] = []
        self.fallen: list[Fell] = []
        self.ends: dict[tuple[int, Client], int] = {}
        # By connection and partition: where it asked last, which later requests of a fetch session leave out; the index
        # of its stretch that may go on; the log start offset and the high watermark that it got.
        self._positions: dict[tuple[int, int], int] = {}
        self._stretches: dict[tuple[int, int], int] = {}
        self._starts: dict[tuple[int, int], int] = {}
        self._high_watermarks: dict[tuple[int, int], int] = {}

    def asked(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        state = request.replica_state
        if (request.replica_id if state is None else state.replica_id) != NO_REPLICA:
            return
        event.audit = request.isolation_level
        for topic in request.topics:
            key = topic.topic or topic.topic_id
            for each in topic.partitions:
                number = self._number_of(key, each.partition)
                self._positions[audited.number, number] = each.fetch_offset

    def asked_ends(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        del audited
        event.audit = request.isolation_level

    def answered_ends(self, audited: AuditedConnection, event: WireEvent, response: Any) -> None:
        del event
        client = audited.seen.client
        for topic in response.topics:
            for each in topic.partitions:
                if not each.error_code:
                    place = self._number_of(topic.name, each.partition_index), client
                    self.ends[place] = max(each.offset, self.ends.get(place, 0))

    def answered(self, audited: AuditedConnection, event: WireEvent, response: Any) -> None:
        for topic in response.responses:
            key = topic.topic or topic.topic_id
            for each in topic.partitions:
                number = self._number_of(key, each.partition_index)
                if number >= 0 and not each.error_code:
                    self._partition(audited.number, number, event, each)

    def _partition(self, connection: int, partition: int, event: WireEvent, answer: Any) -> None:
        place = connection, partition
        self._compare(self._starts, place, "log start offset", answer.log_start_offset, event.at_ns)
        self._compare(self._high_watermarks, place, "high watermark", answer.high_watermark, event.at_ns)
        records = answer.records
        if not records:
            return
        start = position = self._positions.get(place)
        buffers: list[Any] = [records] if isinstance(records, bytes | bytearray | memoryview) else records
        for buffer in buffers:
            for _, header in iterate_batches(buffer):
                if position is not None and header.base_offset > position and len(self.gaps) < KEPT_MAX:
                    self.gaps.append(Gap(partition, connection, event.at_ns, position, header.base_offset))
                position = header.next_offset
                if start is None:
                    start = header.base_offset
        if start is None or position is None or position <= start:
            return
        is_committed = event.audit == READ_COMMITTED
        aborted = answer.aborted_transactions if is_committed else None
        listed = frozenset((each.producer_id, each.first_offset) for each in aborted or ())
        limit = answer.last_stable_offset if is_committed else answer.high_watermark
        self._positions[place] = position
        stretch = Delivered(
            partition, connection, self._count(), event.at_ns, event.audit, start, position, limit, listed
        )
        self._deliver(place, stretch)

    def _deliver(self, place: tuple[int, int], stretch: Delivered) -> None:
        index = self._stretches.get(place)
        before = None if index is None else self.deliveries[index]
        if (
            index is not None
            and before is not None
            and before.end == stretch.start
            and before.isolation == stretch.isolation
            and before.end <= before.limit
            and before.listed == stretch.listed
        ):
            self.deliveries[index] = before._replace(end=stretch.end, limit=stretch.limit)
        elif len(self.deliveries) < KEPT_MAX:
            self._stretches[place] = len(self.deliveries)
            self.deliveries.append(stretch)
        else:
            self.overflow += 1

    def _compare(
        self, known: dict[tuple[int, int], int], place: tuple[int, int], what: str, now: int, at_ns: int
    ) -> None:
        """What is named from now on is compared with the smaller number: it fell once."""
        if now < 0:
            return
        before = known.get(place, 0)
        if now < before and len(self.fallen) < KEPT_MAX:
            self.fallen.append(Fell(place[1], place[0], at_ns, what, before, now))
        known[place] = now
