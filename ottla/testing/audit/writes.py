"""What clients wrote: what was acknowledged is in the log (B1), unless something has deleted it; what a producer
without idempotence repeats may be there twice (P1); what is refused for good is lost to the application (P8).

In doubt is what has no answer, and what has one that may not have left: it may be in the log or not. An acknowledgement
by the leader alone (acks=1) obliges nothing where there are followers: another leader may not have the batch.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.audit.history import (
    ALL_REPLICAS,
    NO_ANSWER,
    NO_PRODUCER_ID,
    AuditHistory,
    Client,
    FinalLog,
    SentBatch,
    StoredBatch,
)

Identity = tuple[int, ...]
NO_ERROR = {0, NO_ANSWER}
KNOWN_ALREADY = 46
"""DUPLICATE_SEQUENCE_NUMBER: the batch is in the log."""


def check_writes(history: AuditHistory) -> Iterator[AuditFinding]:
    by_partition: dict[int, list[SentBatch]] = defaultdict(list)
    for batch in history.batches:
        by_partition[batch.partition].append(batch)
    for partition, batches in by_partition.items():
        log = history.partitions[partition].log
        if log is not None:
            stored = {each.base_offset: each for each in log.batches}
            yield from _lost(history, batches, log, stored)
            if log.keeps_crcs and not log.is_compacted:
                yield from _repeated(history, partition, batches, log)
        yield from _refused(history, partition, batches)


def _lost(
    history: AuditHistory, batches: Sequence[SentBatch], log: FinalLog, stored: Mapping[int, StoredBatch]
) -> Iterator[AuditFinding]:
    """B1."""
    if log.is_compacted or log.may_lose:
        return
    begin_offset = max(history.partitions[batches[0].partition].begin_offset, 0)
    confirmed = [connection.confirmed for connection in history.connections]
    keeps_crcs, has_followers, high_watermark = log.keeps_crcs, log.has_followers, log.high_watermark
    for batch in batches:
        # Taken apart at once: there are very many, and nearly all of them are there.
        crc, delta, _, producer_id, epoch, sequence, _, connection, _, _, answered, offset, error = batch
        if error or not 0 < answered <= confirmed[connection]:
            continue
        there = stored.get(offset)
        if (
            there is not None
            and offset + delta == there.last_offset < high_watermark
            and (
                (there.producer_id, there.producer_epoch, there.base_sequence) == (producer_id, epoch, sequence)
                if producer_id != NO_PRODUCER_ID
                else there.crc == crc or not keeps_crcs
            )
        ):
            continue
        if batch.offset < begin_offset or (has_followers and batch.acks != ALL_REPLICAS):
            continue
        why = _why_lost(batch, there, log)
        if why is not None:
            where = str(history.partitions[batch.partition])
            client_id = history.connections[batch.connection].client[0]
            yield AuditFinding(FindingKind.B1, why, where, client_id, (history.sent(batch),))


def _why_lost(batch: SentBatch, there: StoredBatch | None, log: FinalLog) -> str | None:
    """None: a deletion explains that it is not there."""
    offsets = f"offsets {batch.offset} to {batch.last_offset}"
    if batch.offset < log.log_start_offset:
        if batch.offset < log.deleted_before or batch.max_timestamp < log.expires_before_ms:
            return None
        return f"{offsets} are acknowledged, and the log begins at {log.log_start_offset}, which nothing asked for"
    if batch.last_offset >= log.high_watermark:
        return f"{offsets} are acknowledged, and the high watermark is {log.high_watermark}"
    if there is None:
        return f"{offsets} are acknowledged, and no batch is there"
    return f"{offsets} are acknowledged, and another batch is there"


def _repeated(
    history: AuditHistory, partition: int, batches: Sequence[SentBatch], log: FinalLog
) -> Iterator[AuditFinding]:
    """P1. A client that sends the same bytes again though they were acknowledged means it so."""
    crcs = [batch.crc for batch in batches if batch.producer_id == NO_PRODUCER_ID]
    if len(set(crcs)) == len(crcs):
        return
    sent: dict[tuple[Client, int, int], list[SentBatch]] = defaultdict(list)
    for batch in batches:
        if batch.producer_id == NO_PRODUCER_ID:
            client = history.connections[batch.connection].client
            sent[client, batch.crc, batch.last_offset_delta].append(batch)
    several = {key: tries for key, tries in sent.items() if len(tries) > 1}
    if not several:
        return
    tries_of_all: dict[int, int] = defaultdict(int)
    for (_, crc, _), tries in sent.items():
        tries_of_all[crc] += len(tries)
    places: dict[int, list[int]] = defaultdict(list)
    for stored in log.batches:
        if stored.producer_id == NO_PRODUCER_ID:
            places[stored.crc].append(stored.base_offset)
    for (client, crc, delta), tries in several.items():
        acknowledged = sum(history.has_got(each) for each in tries)
        copies = places[crc]
        of_others = tries_of_all[crc] - len(tries)
        if len(copies) - of_others > max(acknowledged, 1):
            what = f"{delta + 1} records are at offsets {' and '.join(map(str, copies))}"
            events = tuple(map(history.sent, tries[:3]))
            yield AuditFinding(FindingKind.P1, what, str(history.partitions[partition]), client[0], events)


def _refused(history: AuditHistory, partition: int, batches: Sequence[SentBatch]) -> Iterator[AuditFinding]:
    """P8, one for each error of a client."""
    if {batch.error for batch in batches} <= NO_ERROR:
        return
    outcomes: dict[tuple[Client, Identity], list[SentBatch]] = defaultdict(list)
    for batch in batches:
        identity = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        key: Identity = (batch.crc,) if batch.producer_id == NO_PRODUCER_ID else identity
        outcomes[history.connections[batch.connection].client, key].append(batch)
    lost: dict[tuple[Client, int], list[SentBatch]] = defaultdict(list)
    for (client, _), tries in outcomes.items():
        if any(each.error in (0, KNOWN_ALREADY, NO_ANSWER) for each in tries):
            continue
        if history.is_final(tries[-1].error):
            lost[client, tries[-1].error].append(tries[-1])
    for (client, error), last in lost.items():
        count = sum(each.last_offset_delta + 1 for each in last)
        what = f"{count} records got {history.error_name(error)}"
        yield AuditFinding(
            FindingKind.P8, what, str(history.partitions[partition]), client[0], tuple(map(history.sent, last[:3]))
        )
