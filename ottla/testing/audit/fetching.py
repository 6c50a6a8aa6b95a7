"""What clients were given by Fetch, and what ListOffsets answered: stretches of offsets, gaps, numbers that fell."""

from collections.abc import Callable
from typing import Any, Final

from ottla.testing.audit.history import READ_COMMITTED, Client, Delivered, Fell, Gap
from ottla.testing.audit.ledger import AuditedConnection, FetchPlace
from ottla.testing.deliveries import batch_spans
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
        """How many stretches and ends came after the last ones that are kept."""
        self.gaps: list[Gap] = []
        self.fallen: list[Fell] = []
        self.ends: dict[tuple[int, Client], int] = {}

    def asked(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        state = request.replica_state
        if (request.replica_id if state is None else state.replica_id) != NO_REPLICA:
            return
        event.audit = request.isolation_level
        for topic in request.topics:
            key = topic.topic or topic.topic_id
            for each in topic.partitions:
                number = self._number_of(key, each.partition)
                if number >= 0:
                    _place(audited, number).position = each.fetch_offset

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
                    if place in self.ends or len(self.ends) < KEPT_MAX:
                        self.ends[place] = max(each.offset, self.ends.get(place, 0))
                    else:
                        self.overflow += 1

    def answered(self, audited: AuditedConnection, event: WireEvent, response: Any) -> None:
        for topic in response.responses:
            key = topic.topic or topic.topic_id
            for each in topic.partitions:
                number = self._number_of(key, each.partition_index)
                if number >= 0 and not each.error_code:
                    self._partition(audited, number, event, each)

    def _partition(self, audited: AuditedConnection, partition: int, event: WireEvent, answer: Any) -> None:
        connection, place = audited.number, _place(audited, partition)
        start_now, high_watermark = answer.log_start_offset, answer.high_watermark
        # What is named from now on is compared with the smaller number: it fell once.
        if start_now >= 0:
            if start_now < place.log_start_offset:
                fell = Fell(partition, connection, event.at_ns, "log start offset", place.log_start_offset, start_now)
                self._fell(fell)
            place.log_start_offset = start_now
        if high_watermark >= 0:
            if high_watermark < place.high_watermark:
                fell = Fell(partition, connection, event.at_ns, "high watermark", place.high_watermark, high_watermark)
                self._fell(fell)
            place.high_watermark = high_watermark
        records = answer.records
        if not records:
            return
        start = position = place.position
        buffers: list[Any] = [records] if isinstance(records, bytes | bytearray | memoryview) else records
        for buffer in buffers:
            for base_offset, next_offset in batch_spans(buffer):
                if position is not None and base_offset > position and len(self.gaps) < KEPT_MAX:
                    self.gaps.append(Gap(partition, connection, event.at_ns, position, base_offset))
                position = next_offset
                if start is None:
                    start = base_offset
        if start is None or position is None or position <= start:
            return
        is_committed = event.audit == READ_COMMITTED
        aborted = answer.aborted_transactions if is_committed else None
        listed = frozenset((each.producer_id, each.first_offset) for each in aborted or ())
        limit = answer.last_stable_offset if is_committed else answer.high_watermark
        place.position = position
        stretch = Delivered(
            partition, connection, self._count(), event.at_ns, event.audit, start, position, limit, listed
        )
        self._deliver(place, stretch)

    def _deliver(self, place: FetchPlace, stretch: Delivered) -> None:
        index = place.stretch
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
            place.stretch = len(self.deliveries)
            self.deliveries.append(stretch)
        else:
            self.overflow += 1

    def _fell(self, fell: Fell) -> None:
        if len(self.fallen) < KEPT_MAX:
            self.fallen.append(fell)


def _place(audited: AuditedConnection, partition: int) -> FetchPlace:
    place = audited.places.get(partition)
    if place is None:
        place = audited.places[partition] = FetchPlace()
    return place
