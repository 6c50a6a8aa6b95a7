"""What must hold of a cluster after every step, and when it has healed: the invariants of docs/invariants §20."""

import itertools

from ottla.protocol.errors import CorruptMessage, ErrorCode
from ottla.protocol.records.batch import iterate_batches
from ottla.replication.follower_effects import Truncated
from tests.replication.broker import Broker
from tests.replication.cluster import Cluster, Write

Batch = tuple[int, int, bytes]
"""(base offset, leader epoch, bytes)"""


class Violation(AssertionError):
    """An invariant of docs/invariants §20 does not hold."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


class Oracle:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # Everything that was below the high watermark of a leader, ever.
        self.committed: list[Batch] = []
        self.acknowledged: list[bytes] = []
        self._leaders: dict[int, int] = {}
        self._high_watermarks: dict[tuple[int, int, int], int] = {}

    @property
    def committed_end(self) -> int:
        return self._end_of(self.committed)

    def _end_of(self, batches: list[Batch]) -> int:
        if not batches:
            return 0
        return max(header.next_offset for _, header in iterate_batches(memoryview(batches[-1][2])))

    def check(self) -> None:
        """After every step: I-1, I-4, I-5, I-6, and no truncation below the high watermark."""
        for broker in self.cluster.brokers.values():
            partition, log = broker.partition, broker.log
            require(
                log.log_start_offset <= partition.high_watermark <= log.log_end_offset,
                f"I-6 {partition}: {log.log_start_offset} {partition.high_watermark} {log.log_end_offset}",
            )
            if partition.is_leader:
                leader = self._leaders.setdefault(partition.leader_epoch, broker.id)
                require(leader == broker.id, f"I-1: {leader} and {broker.id} lead in epoch {partition.leader_epoch}")
                term = (broker.id, broker.epoch, partition.leader_epoch)
                require(self._high_watermarks.get(term, 0) <= partition.high_watermark, "I-5: the high watermark fell")
                self._high_watermarks[term] = partition.high_watermark
                if partition.high_watermark > self.committed_end:
                    self._commit(broker)
        while self.cluster.facts:
            broker_id, fact = self.cluster.facts.pop(0)
            require(
                not isinstance(fact, Truncated) or not fact.lost_committed,
                f"I-5: broker {broker_id} truncated below its high watermark",
            )
        self._acknowledge()

    def _commit(self, leader: Broker) -> None:
        below = [batch for batch in batches_of(leader) if batch[0] < leader.partition.high_watermark]
        require(below[: len(self.committed)] == self.committed, f"I-3: leader {leader.id} has other committed records")
        self.committed = below
        self.check_isr()

    def check_isr(self) -> None:
        """I-3: what is committed is on every member of the committed ISR."""
        for broker_id in self.cluster.controller.state.isr:
            broker = self.cluster.brokers.get(broker_id)
            if broker is not None:
                has = batches_of(broker)[: len(self.committed)]
                require(has == self.committed, f"I-3: committed records are not on broker {broker_id} of the ISR")

    def _acknowledge(self) -> None:
        waiting: list[Write] = []
        for write in self.cluster.writes:
            if self.cluster.brokers.get(write.leader.id) is not write.leader:
                continue
            code = write.leader.partition.acknowledgement(write.last_offset, write.leader_epoch)
            if code is None:
                waiting.append(write)
            elif code is ErrorCode.NONE:
                require(write.last_offset < write.leader.partition.high_watermark, "I-4: acknowledged above the HW")
                self.acknowledged.append(write.value)
        self.cluster.writes = waiting

    def check_logs(self) -> None:
        """I-2, I-3, I-7, I-9: contents of all logs that are open."""
        logs = {broker.id: batches_of(broker) for broker in self.cluster.brokers.values()}
        for broker_id, batches in logs.items():
            broker = self.cluster.brokers[broker_id]
            entries = broker.log.epochs.entries
            require(
                all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in itertools.pairwise(entries)),
                f"I-7: {entries}",
            )
            expected = 0
            for base, epoch, content in batches:
                require(base == expected, f"I-9: broker {broker_id} has {base} where {expected} was due")
                require(broker.log.epochs.epoch_at(base) == epoch, f"I-7: epoch {epoch} at {base}, {entries}")
                expected = base + 1 + int.from_bytes(content[23:27])
        for a, b in itertools.combinations(logs.values(), 2):
            self._check_matching(a, b)
        self.check_isr()

    def _check_matching(self, a: list[Batch], b: list[Batch]) -> None:
        """I-2: beyond the first difference, no two batches have both offset and epoch in common."""
        same = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        common = {batch[:2] for batch in a[same:]} & {batch[:2] for batch in b[same:]}
        require(not common, f"I-2: different logs share {sorted(common)}")

    def check_healed(self) -> None:
        """R12: all logs are the same, and nothing that was acknowledged is missing."""
        first, *others = self.cluster.brokers.values()
        end = first.partition.high_watermark
        for broker in (first, *others):
            require(
                (broker.partition.high_watermark, broker.log.log_end_offset) == (end, end),
                f"R06: {broker.id} has HW {broker.partition.high_watermark} of {broker.log.log_end_offset}, not {end}",
            )
            require(log_bytes(broker) == log_bytes(first), f"R12: {broker.id} and {first.id} differ")
        content = b"".join(batch[2] for batch in batches_of(first))
        for value in self.acknowledged:
            require(value in content, f"I-4: {value!r} was acknowledged and is gone")


def log_bytes(broker: Broker) -> bytes:
    log = broker.log
    found, at = b"", log.log_start_offset
    try:
        while (result := log.read(at, 1 << 24, upper_bound=log.log_end_offset, wait=True)).records:
            found += bytes(result.records)
            at = result.end_offset
    except CorruptMessage as error:
        raise Violation(f"I-7: {error}") from error
    return found


def batches_of(broker: Broker) -> list[Batch]:
    content = memoryview(log_bytes(broker))
    return [
        (header.base_offset, header.partition_leader_epoch, bytes(content[at : at + header.size_bytes]))
        for at, header in iterate_batches(content)
    ]
