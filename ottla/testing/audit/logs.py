"""What stands in the logs in the end: sequences once and in order (B2, B3), replicas alike (B9), no transaction left
open (P6), all of it consumed where a client consumes (P5).

A log that was compacted lacks batches wherever it may, and a producer that was forgotten begins anywhere.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.audit.history import NO_PRODUCER_ID, AuditedPartition, AuditHistory, FinalLog, StoredBatch

SEQUENCES = 1 << 31


def check_logs(history: AuditHistory) -> Iterator[AuditFinding]:
    consumed: dict[int, int] = {}
    for each in history.deliveries:
        consumed[each.partition] = max(consumed.get(each.partition, 0), each.end)
    topics = {history.partitions[partition].topic for partition in consumed}
    for number, partition in enumerate(history.partitions):
        log = partition.log
        if log is None:
            continue
        if partition.judges_sequences and not log.is_compacted:
            yield from _sequences(history, partition, log.batches)
        yield from _replicas(partition, log)
        if log.last_stable_offset < log.high_watermark:
            what = f"readers of committed records wait at offset {log.last_stable_offset}"
            yield AuditFinding(FindingKind.P6, what, str(partition))
        if partition.topic in topics:
            yield from _unread(partition, log, consumed.get(number, log.log_start_offset))


def _sequences(
    history: AuditHistory, partition: AuditedPartition, batches: Sequence[StoredBatch]
) -> Iterator[AuditFinding]:
    """B2 and B3. The first batch of a producer may have any sequence: those before may have been deleted."""
    expected: dict[int, tuple[int, int]] = {}
    places: dict[tuple[int, int, int], int] = {}
    for batch in [each for each in batches if each.producer_id != NO_PRODUCER_ID]:
        producer_id = batch.producer_id
        if batch.is_control or producer_id in history.forged:
            continue
        epoch, sequence = batch.producer_epoch, batch.base_sequence
        known = expected.get(producer_id)
        following = (sequence + batch.last_offset - batch.base_offset + 1) % SEQUENCES
        first = places.setdefault((producer_id, epoch, sequence), batch.base_offset)
        who = f"sequence {sequence} of producer {producer_id}, epoch {epoch},"
        if first != batch.base_offset:
            yield AuditFinding(FindingKind.B2, f"{who} is at offsets {first} and {batch.base_offset}", str(partition))
        elif known is not None and epoch < known[0]:
            what = f"{who} is at offset {batch.base_offset}, after epoch {known[0]}"
            yield AuditFinding(FindingKind.B3, what, str(partition))
        elif known is not None and epoch == known[0] and sequence != known[1]:
            what = f"{who} is at offset {batch.base_offset}, where {known[1]} follows"
            yield AuditFinding(FindingKind.B3, what, str(partition))
        expected[producer_id] = epoch, following


def _replicas(partition: AuditedPartition, log: FinalLog) -> Iterator[AuditFinding]:
    """B9."""
    if log.is_compacted or log.may_lose:
        return
    for node, batches in log.replicas.items():
        start = batches[0].base_offset if batches else log.high_watermark
        start = max(start, log.batches[0].base_offset if log.batches else log.high_watermark)
        end = min(batches[-1].last_offset + 1 if batches else 0, log.high_watermark)
        ours = [each for each in log.batches if each.base_offset >= start and each.last_offset < end]
        theirs = [each for each in batches if each.base_offset >= start and each.last_offset < end]
        for mine, other in zip_longest(ours, theirs):
            if mine != other:
                offset = min(each.base_offset for each in (mine, other) if each is not None)
                yield AuditFinding(
                    FindingKind.B9, f"broker {node} has another batch at offset {offset}", str(partition)
                )
                break


def _unread(partition: AuditedPartition, log: FinalLog, consumed: int) -> Iterator[AuditFinding]:
    """P5. Only of topics that a client consumes: a test that only writes reads by the handle."""
    left = [
        each
        for each in log.batches
        if not each.is_control and each.last_offset >= consumed and each.last_offset < log.high_watermark
    ]
    if left:
        count = sum(each.last_offset - max(each.base_offset, consumed) + 1 for each in left)
        yield AuditFinding(
            FindingKind.P5, f"{count} records from offset {max(left[0].base_offset, consumed)} on", str(partition)
        )
