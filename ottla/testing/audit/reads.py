"""What clients were given: nothing above what they may see (B5), nothing left out (B6), ends that do not go back for
one connection (B4).

Between connections nothing is promised: they may be to different brokers.
"""

from bisect import bisect_left
from collections.abc import Iterator

from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.audit.history import READ_COMMITTED, Aborted, AuditHistory, Delivered, FinalLog


def check_reads(history: AuditHistory) -> Iterator[AuditFinding]:
    yield from _fallen(history)
    yield from _gaps(history)
    for each in history.deliveries:
        yield from _above_the_limit(history, each)
        if each.isolation == READ_COMMITTED:
            yield from _aborted(history, each)


def _fallen(history: AuditHistory) -> Iterator[AuditFinding]:
    for fell in history.fallen:
        partition, connection = history.partitions[fell.partition], history.connections[fell.connection]
        if partition.log is not None and not partition.log.may_lose:
            what = f"{connection.name} got the {fell.what} {fell.after} after {fell.before}"
            event = history.at(fell.at_ns, fell.connection, f"Fetch {partition}: {fell.what} {fell.after}")
            yield AuditFinding(FindingKind.B4, what, str(partition), connection.client[0], (event,))


def _gaps(history: AuditHistory) -> Iterator[AuditFinding]:
    """B6. What is not in the log any more may have been deleted before."""
    for gap in history.gaps:
        partition, connection = history.partitions[gap.partition], history.connections[gap.connection]
        log = partition.log
        if log is None or log.may_lose:
            continue
        first = bisect_left(log.batches, gap.start, key=lambda batch: batch.base_offset)
        left_out = first < len(log.batches) and log.batches[first].last_offset < gap.end
        if left_out:
            batch = log.batches[first]
            what = f"{connection.name} was not given offsets {batch.base_offset} to {batch.last_offset}"
            event = history.at(gap.at_ns, gap.connection, f"Fetch {partition} from {gap.start}: from {gap.end}")
            yield AuditFinding(FindingKind.B6, what, str(partition), connection.client[0], (event,))


def _above_the_limit(history: AuditHistory, each: Delivered) -> Iterator[AuditFinding]:
    """B5: above what the answer itself named, or beyond what is in the log in the end."""
    partition, connection = history.partitions[each.partition], history.connections[each.connection]
    log = partition.log
    limit, name = each.limit, "last stable offset" if each.isolation == READ_COMMITTED else "high watermark"
    if log is not None and not log.may_lose:
        end = log.log_end_offset if log.has_followers else log.high_watermark
        if each.end > end and end < limit:
            limit, name = end, "end of the log now"
    if each.end > limit:
        what = f"{connection.name} was given records up to offset {each.end - 1}, and {limit} is the {name}"
        yield AuditFinding(FindingKind.B5, what, str(partition), connection.client[0], (_fetched(history, each),))


def _aborted(history: AuditHistory, each: Delivered) -> Iterator[AuditFinding]:
    """B5: a reader of committed records drops aborted ones by the list that comes with them."""
    partition, connection = history.partitions[each.partition], history.connections[each.connection]
    log = partition.log
    if log is None:
        return
    for aborted in log.aborted:
        key = aborted.producer_id, aborted.first_offset
        if key not in each.listed and _has_records(log, aborted, each):
            what = f"{connection.name} did not learn that producer {aborted.producer_id} aborted its records"
            yield AuditFinding(FindingKind.B5, what, str(partition), connection.client[0], (_fetched(history, each),))
            return


def _has_records(log: FinalLog, aborted: Aborted, each: Delivered) -> bool:
    """Whether records of the transaction are in the stretch."""
    start, end = max(aborted.first_offset, each.start), min(aborted.last_offset, each.end)
    return any(
        batch.producer_id == aborted.producer_id and batch.is_transactional and not batch.is_control
        for batch in log.batches
        if start <= batch.base_offset < end
    )


def _fetched(history: AuditHistory, each: Delivered) -> str:
    partition = history.partitions[each.partition]
    return history.at(each.at_ns, each.connection, f"Fetch {partition}: offsets {each.start} to {each.end - 1}")
