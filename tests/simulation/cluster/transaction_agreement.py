"""What replicas know of producers and transactions: the same as one another, and as their own logs (I-31, I-32).

Looked at when nothing is written any more and every replica has everything. A log whose beginning was deleted or
compacted does not say all that its replicas remember: then only what both of two replicas know is compared.
"""

from collections.abc import Iterator, Mapping, Set
from itertools import pairwise
from typing import Any, NamedTuple

from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.control import marker_of
from ottla.storage.producer_entry import NO_OFFSET
from ottla.storage.producer_state import ProducerBatch, ProducerState, ProducerStateManager
from ottla.storage.transactions import AbortedTxn

Ids = Mapping[int, str]
"""Transactional ids by producer id."""


class KnownProducer(NamedTuple):
    epoch: int
    coordinator_epoch: int
    open_since: int
    last_batch: ProducerBatch | None


def known(states: Mapping[int, ProducerState]) -> dict[int, KnownProducer]:
    """All but what a snapshot leaves out, and times."""
    return {
        producer_id: KnownProducer(
            state.epoch,
            state.coordinator_epoch,
            state.transaction_first_offset,
            state.batches[-1]._replace(timestamp=0) if state.batches else None,
        )
        for producer_id, state in states.items()
    }


def open_transactions(log: Any) -> set[int]:
    """Their first offsets."""
    return {state.transaction_first_offset for state in log.producers.states.values()} - {NO_OFFSET}


def hanging(log: Any, undecided: Set[int]) -> set[int]:
    """The producers whose transaction has begun at an undecided offset and has no end in the log, emptied markers being
    none: it stays open, and they do not expire (§41.2)."""
    open_since: dict[int, int] = {}
    for segment in log.segments:
        for batch in segment.batches_from(0):
            header = batch.header
            if header.is_control:
                if marker_of(batch.view) is not None:
                    open_since.pop(header.producer_id, None)
            elif header.is_transactional:
                open_since.setdefault(header.producer_id, header.base_offset)
    return {
        producer_id
        for producer_id, offset in log.producers.open_transactions.items()
        if offset in undecided and open_since.get(producer_id) == offset
    }


def differences(replicas: Mapping[int, Any], undecided: Set[int] = frozenset(), *, expire: bool = False) -> list[str]:
    """Between the logs of one partition, by broker, which all end at one offset. A transaction that began at an
    undecided one may be open in one of them only. Where producers `expire`, one may be gone in one replica before
    another, whose copy is younger."""
    return [
        f"brokers {one} and {other}: {difference}"
        for (one, log), (other, further) in pairwise(replicas.items())
        for difference in _between(log, further, undecided, expire=expire)
    ]


def _between(one: Any, other: Any, undecided: Set[int], *, expire: bool) -> Iterator[str]:
    ours, theirs = known(one.producers.states), known(other.producers.states)
    say_all = _says_all(one) and _says_all(other)
    common = ours.keys() & theirs.keys()
    if expire:
        ours, theirs = ({each: side[each] for each in common} for side in (ours, theirs))
    if not say_all:
        # A marker that compaction has emptied does not say who wrote it.
        start = max(one.log_start_offset, other.log_start_offset)
        ours, theirs = ({each: _in_part(side[each], undecided, start) for each in common} for side in (ours, theirs))
    for producer_id in sorted(ours.keys() | theirs.keys()):
        if ours.get(producer_id) != theirs.get(producer_id):
            yield f"producer {producer_id} is {ours.get(producer_id)} and {theirs.get(producer_id)}"
    if say_all and aborted(one) != aborted(other):
        yield f"aborted transactions {aborted(one)} and {aborted(other)}"


def _in_part(producer: KnownProducer, undecided: Set[int], start: int) -> KnownProducer:
    """A batch below the `start` is remembered by who had it, and not by a replica whose copy began behind it."""
    open_since = NO_OFFSET if producer.open_since in undecided else producer.open_since
    last_batch = producer.last_batch
    if last_batch is not None and last_batch.last_offset < start:
        last_batch = None
    return producer._replace(coordinator_epoch=-1, open_since=open_since, last_batch=last_batch)


def aborted(log: Any) -> list[AbortedTxn]:
    """All of the index."""
    return list(log.aborted_transactions(0, log.log_end_offset))


def _says_all(log: Any) -> bool:
    return log.log_start_offset == 0 and not log.config.is_compacted


def differences_from_log(log: Any) -> list[str]:
    """Between what a replica knows, and the batches that it has."""
    if not _says_all(log):
        return []
    producers, index = ProducerStateManager(log.config.producer_id_expiration_ms), []
    for header, content in _batches(log):
        entry = producers.replay(content, header, 0)
        if entry is not None:
            index.append(entry)
    wrong = []
    live, replayed = known(log.producers.states), known(producers.states)
    if any(replayed.get(producer_id) != state for producer_id, state in live.items()):
        wrong.append(f"producers are {live}, the log says {replayed}")
    if index != aborted(log):
        wrong.append(f"aborted transactions are {aborted(log)}, the log says {index}")
    return wrong


def overlapping(log: Any, ids: Ids) -> list[str]:
    """Transactions of one transactional id that are open at once, perhaps under two producer ids."""
    if not _says_all(log):
        return []
    open_as: dict[str, tuple[int, int]] = {}
    wrong = []
    for header, content in _batches(log):
        transactional_id = ids.get(header.producer_id)
        if not header.is_transactional or transactional_id is None:
            continue
        pair = (header.producer_id, header.producer_epoch)
        if header.is_control:
            ended = open_as.get(transactional_id)
            if marker_of(content) is not None and ended is not None and ended[0] == header.producer_id:
                del open_as[transactional_id]
        elif open_as.setdefault(transactional_id, pair) != pair:
            wrong.append(f"{transactional_id}: {pair} at {header.base_offset}, {open_as[transactional_id]} is open")
    return wrong


def _batches(log: Any) -> Iterator[tuple[BatchHeader, memoryview]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        chunk = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True, wait=True)
        for position, header in iterate_batches(chunk.records):
            yield header, chunk.records[position : position + header.size_bytes]
        offset = chunk.end_offset
