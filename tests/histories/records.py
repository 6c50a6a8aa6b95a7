"""Records: what was acknowledged to producers and handed to consumers, against what is stored in the end.

An acknowledged record (acks=all) is stored, once, at the offset that was acknowledged (I-4, I-9, I-10); a record that a
consumer was handed stays where it was (I-5); records of an idempotent producer stand in the order in which they were
sent, and a record that was sent after another was acknowledged stands behind that one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.histories.events import (
    ALL_IN_SYNC_REPLICAS,
    UNKNOWN_OFFSET,
    Acknowledged,
    Event,
    FinalLog,
    Read,
    Refused,
    Sent,
)
from tests.histories.violations import Kind, Partition, Violation

EMPTY = FinalLog(0, ())


@dataclass
class _Records:
    """A history's events about records, by value or in order."""

    sent: dict[str, Sent] = field(default_factory=dict)
    acknowledged: dict[str, list[Acknowledged]] = field(default_factory=lambda: defaultdict(list))
    refused: set[str] = field(default_factory=set)
    reads: list[Read] = field(default_factory=list)

    def add(self, event: Event) -> None:
        match event:
            case Sent():
                assert event.value not in self.sent, f"{event.value!r} was sent twice: values name records"
                self.sent[event.value] = event
            case Acknowledged():
                self.acknowledged[event.value].append(event)
            case Refused():
                self.refused.add(event.value)
            case Read():
                self.reads.append(event)
            case _:
                pass

    def is_durable(self, value: str) -> bool:
        return value in self.acknowledged and self.sent[value].acks == ALL_IN_SYNC_REPLICAS


def check_records(events: Iterable[Event], final_logs: Mapping[Partition, FinalLog]) -> Iterator[Violation]:
    records = _Records()
    for event in events:
        records.add(event)
    places = {partition: _places(log) for partition, log in final_logs.items()}
    yield from _acknowledged_but_not_there(records, final_logs, places)
    yield from _read_but_not_there(records, final_logs, places)
    for partition, log in final_logs.items():
        yield from _wrongly_there(records, partition, log, places[partition])
        yield from _holes(partition, log)
        yield from _out_of_order(records, partition, log, places[partition])
    yield from _skips(records.reads)


def _places(log: FinalLog) -> dict[str, list[int]]:
    """The offsets at which each value is stored."""
    places: dict[str, list[int]] = defaultdict(list)
    for offset, value in log.records:
        places[value].append(offset)
    return dict(places)


def _acknowledged_but_not_there(
    records: _Records, final_logs: Mapping[Partition, FinalLog], places: Mapping[Partition, Mapping[str, list[int]]]
) -> Iterator[Violation]:
    for value, acknowledgements in records.acknowledged.items():
        assert value in records.sent, f"{value!r} was acknowledged but never sent: the history is not whole"
        if not records.is_durable(value):
            continue
        partition = (records.sent[value].topic, records.sent[value].partition)
        start = final_logs.get(partition, EMPTY).log_start_offset
        stored = places.get(partition, {}).get(value, [])
        for acknowledged in acknowledgements:
            offset = acknowledged.offset
            if offset < start and (offset != UNKNOWN_OFFSET or start > 0):
                continue
            if not stored:
                yield Violation(Kind.LOST, partition, f"{value} was acknowledged at {offset}")
            elif offset not in (UNKNOWN_OFFSET, *stored):
                yield Violation(Kind.MOVED, partition, f"{value} was acknowledged at {offset}, is at {stored}")


def _read_but_not_there(
    records: _Records, final_logs: Mapping[Partition, FinalLog], places: Mapping[Partition, Mapping[str, list[int]]]
) -> Iterator[Violation]:
    judged: set[tuple[Partition, int, str]] = set()
    for read in records.reads:
        partition, value = (read.topic, read.partition), read.value
        if (partition, read.offset, value) in judged:
            continue
        judged.add((partition, read.offset, value))
        if read.offset < final_logs.get(partition, EMPTY).log_start_offset:
            continue
        stored = places.get(partition, {}).get(value, [])
        how = f"{value} was read by {read.consumer} at {read.offset}"
        if value not in records.sent:
            yield Violation(Kind.INVENTED, partition, how)
        elif not stored:
            yield Violation(Kind.VANISHED, partition, how)
        elif read.offset not in stored:
            yield Violation(Kind.MOVED, partition, f"{how}, is at {stored}")


def _wrongly_there(
    records: _Records, partition: Partition, log: FinalLog, places: Mapping[str, Sequence[int]]
) -> Iterator[Violation]:
    for value, offsets in places.items():
        sent = records.sent.get(value)
        if sent is None or (sent.topic, sent.partition) != partition:
            yield Violation(Kind.INVENTED, partition, f"{value} is at {offsets}")
            continue
        if value in records.refused:
            yield Violation(Kind.REFUSED_BUT_WRITTEN, partition, f"{value} is at {offsets}")
        if len(offsets) > 1 and sent.idempotent and not is_repeated_in_a_new_epoch(log, offsets):
            yield Violation(Kind.DUPLICATED, partition, f"{value} is at {offsets}")


def is_repeated_in_a_new_epoch(log: FinalLog, offsets: Sequence[int]) -> bool:
    """Whether one producer wrote a record in several of its epochs, once in each.

    Sequences are compared within an epoch, by Kafka too: no broker can know such a repetition. librdkafka raises the
    epoch when a batch is out of order because the one before it was refused, as by a broker that does not lead yet. It
    then sends again, in the new epoch, what it has no answer for in any partition, written or not (its issue 4953).
    """
    writers = [log.writers.get(offset) for offset in offsets]
    known = {writer for writer in writers if writer is not None}
    return len(known) == len(writers) and len({producer_id for producer_id, _ in known}) == 1


def _holes(partition: Partition, log: FinalLog) -> Iterator[Violation]:
    offsets = [log.log_start_offset - 1, *(offset for offset, _ in log.records)]
    for before, after in pairwise(offsets):
        if after != before + 1:
            yield Violation(Kind.HOLE, partition, f"offset {after} follows {before}")


def _out_of_order(
    records: _Records, partition: Partition, log: FinalLog, places: Mapping[str, Sequence[int]]
) -> Iterator[Violation]:
    """Records that stand twice are left out: where they belong is not known."""
    latest_of: dict[str, Sent] = {}
    latest: Sent | None = None
    for offset, value in log.records:
        sent = records.sent.get(value)
        if sent is None or len(places[value]) > 1:
            continue
        previous = latest_of.setdefault(sent.producer, sent)
        if sent.idempotent and sent.number < previous.number:
            how = f"{value} at {offset} was sent before {previous.value}, by the same producer"
            yield Violation(Kind.REORDERED, partition, how)
        elif latest is not None and records.is_durable(value):
            known_us = min(each.at_us for each in records.acknowledged[value])
            if known_us < latest.at_us:
                how = f"{value} at {offset} was acknowledged before {latest.value} was sent"
                yield Violation(Kind.REORDERED, partition, how)
        if sent.number >= previous.number:
            latest_of[sent.producer] = sent
        if latest is None or sent.at_us > latest.at_us:
            latest = sent


def _skips(reads: Iterable[Read]) -> Iterator[Violation]:
    latest: dict[tuple[str, int, Partition], Read] = {}
    for read in sorted(reads, key=lambda read: read.at_us):
        partition = (read.topic, read.partition)
        before = latest.get((read.consumer, read.session, partition))
        latest[read.consumer, read.session, partition] = read
        if before is not None and read.offset != before.offset + 1:
            how = f"{read.consumer} was handed {read.offset} after {before.offset}"
            yield Violation(Kind.SKIPPED, partition, how)
