"""A broker that never errs, and clients that lose answers, retry and read: no finding of the broker, whatever comes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.testing.audit.findings import Blame
from ottla.testing.audit.history import READ_COMMITTED, AuditHistory, FinalLog, SentBatch, StoredBatch
from ottla.testing.audit.judge import judge
from tests.audit.building import A, B, committed, delivered, history, in_doubt, log, sent, stored

PRODUCER = 7


class PerfectBroker:
    """One partition; each method is a step of a client."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.sent: list[SentBatch] = []
        self.deliveries = []
        self.commits = []
        self.end = 0
        self.start = 0
        self.sequence = 0
        self.positions = {A: 0, B: 0}

    def write(self, is_idempotent: bool, is_written: bool, is_answered: bool) -> None:
        """With a lost answer an idempotent producer sends again."""
        own = {"crc": 1000 + len(self.sent)}
        if is_idempotent:
            own |= {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": self.sequence}
        if not is_written and not (is_idempotent and is_answered):
            self.sent.append(in_doubt(self.end, **own))
            return
        if not is_answered:
            self.sent.append(in_doubt(self.end, **own))
        if is_answered or is_idempotent:
            self.sent.append(sent(self.end, **own))
        self.batches.append(stored(self.end, **own))
        self.sequence += is_idempotent
        self.end += 1

    def read(self, connection: int, isolation: int) -> None:
        begin = max(self.positions[connection], self.start)
        if begin < self.end:
            read = delivered(begin, self.end, connection=connection, isolation=isolation, number=len(self.deliveries))
            self.deliveries.append(read)
            self.positions[connection] = self.end

    def commit(self, connection: int) -> None:
        self.commits.append(committed(self.positions[connection], connection=connection, answered=1))

    def delete(self, before: int) -> None:
        self.start = max(self.start, min(before, self.end))

    def history(self) -> AuditHistory:
        left = [batch for batch in self.batches if batch.base_offset >= self.start]
        final: FinalLog = log(
            *left,
            log_start_offset=self.start,
            deleted_before=self.start,
            high_watermark=self.end,
            last_stable_offset=self.end,
            log_end_offset=self.end,
        )
        offsets = {("g", 0): self.commits[-1].offset} if self.commits else {}
        return history(self.sent, final, deliveries=self.deliveries, commits=self.commits, offsets=offsets)


STEPS = st.one_of(
    st.tuples(st.just("write"), st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("read"), st.sampled_from((A, B)), st.sampled_from((0, READ_COMMITTED))),
    st.tuples(st.just("commit"), st.sampled_from((A, B))),
    st.tuples(st.just("delete"), st.integers(0, 40)),
)


def lived(steps: list[tuple[str, ...]]) -> PerfectBroker:
    broker = PerfectBroker()
    for name, *arguments in steps:
        getattr(broker, name)(*arguments)
    return broker


@given(st.lists(STEPS, max_size=40))
@settings(max_examples=300, deadline=None)
def test_a_perfect_broker_has_no_finding(steps: list[tuple[str, ...]]) -> None:
    assert [each for each in judge(lived(steps).history()) if each.kind.blame is Blame.BROKER] == []


@given(st.lists(STEPS, max_size=40), st.integers(0, 39))
@settings(max_examples=200, deadline=None)
def test_an_acknowledged_batch_that_is_taken_away_is_found(steps: list[tuple[str, ...]], number: int) -> None:
    """Whatever else has happened."""
    broker = lived(steps)
    durable = [each.offset for each in broker.sent if not each.error and each.offset >= broker.start]
    if not durable:
        return
    lost = durable[number % len(durable)]
    broker.batches = [batch for batch in broker.batches if batch.base_offset != lost]

    assert "B1" in {each.kind.name for each in judge(broker.history())}
