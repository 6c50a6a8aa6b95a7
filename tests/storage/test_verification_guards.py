"""The first batch of a transaction and the guard that it presents (§40.3, §40.4)."""

from dataclasses import dataclass, field

import pytest

from ottla.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
)
from ottla.protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.protocol.records.control import TransactionMarker
from ottla.storage.producer_state import EXPIRATION_MS, DuplicateOf, ProducerStateManager
from ottla.storage.verification_guards import (
    GUARDS_MAX,
    NOT_VERIFIED,
    VerificationGuard,
    VerificationGuards,
)
from tests.storage.producers import LAST, batch

PRODUCER = 7
ABORT = TransactionMarker(is_commit=False, coordinator_epoch=0)


@dataclass
class Producing:
    """One producer and a partition that keeps nothing but its end."""

    producers: ProducerStateManager = field(default_factory=ProducerStateManager)
    end: int = 0

    def ask(self, sequence: int = 0, *, epoch: int = 0, raises_epoch: bool = False) -> VerificationGuard | None:
        return self.producers.begin_verification(PRODUCER, epoch, sequence, 0, raises_epoch=raises_epoch)

    def append(
        self, sequence: int = 0, *, epoch: int = 0, guard: VerificationGuard | None = None, plain: bool = False
    ) -> DuplicateOf | None:
        header = batch(sequence, epoch=epoch, attributes=0 if plain else TRANSACTIONAL_BIT)
        duplicate = self.producers.check(header, guard)
        if duplicate is None:
            self._write(header)
        return duplicate

    def abort(self, *, epoch: int = 0, emptied: bool = False) -> None:
        """`emptied`: compaction has left the marker's batch without it."""
        header = batch(-1, epoch=epoch, attributes=TRANSACTIONAL_BIT | CONTROL_BIT)
        self.producers.update_by_marker(header, None if emptied else ABORT, self.end, 0)
        self.producers.confirm()
        self.end += 1

    def replicate(self, *, epoch: int = 0) -> None:
        """A batch that comes from a leader."""
        self._write(batch(0, epoch=epoch, attributes=TRANSACTIONAL_BIT))

    def _write(self, header: BatchHeader) -> None:
        self.producers.update(header, self.end, 0)
        self.producers.confirm()
        self.end += 1

    def refusal(self, sequence: int = 0, **fields: object) -> type[KafkaError]:
        with pytest.raises(KafkaError) as refused:
            self.append(sequence, **fields)  # type: ignore[arg-type]
        return type(refused.value)


@pytest.fixture
def producing() -> Producing:
    return Producing()


def test_first_batch_presents_the_guard_that_was_given(producing: Producing) -> None:
    guard = producing.ask()

    assert producing.refusal() is InvalidTxnState
    assert producing.refusal(guard=VerificationGuard(0, 0, 0, raises_epoch=False)) is InvalidTxnState
    assert producing.append(guard=guard) is None
    assert producing.ask(1) is None, "the transaction is open"
    assert producing.append(1) is None


def test_asking_again_gives_the_same_guard(producing: Producing) -> None:
    """§40.3.1"""
    guard = producing.ask(5)

    assert producing.ask(3) is guard
    assert producing.ask(4) is guard
    assert guard is not None
    assert guard.lowest_sequence == 3
    assert producing.ask(8, epoch=1) is guard
    assert (guard.epoch, guard.lowest_sequence) == (1, 8)


def test_answer_from_before_a_marker_counts_for_nothing(producing: Producing) -> None:
    """§40.3.5: the guard is an identity; a flag would open a transaction that no marker ends."""
    guard = producing.ask()
    producing.abort()
    later = producing.ask()

    assert producing.refusal(guard=guard) is InvalidTxnState
    assert later is not guard


def test_guard_of_the_next_epoch_survives_the_marker_before(producing: Producing) -> None:
    """§39.3.3: the marker of a transaction has the epoch that the data of the next one has."""
    producing.append(guard=producing.ask(raises_epoch=True))
    guard = producing.ask(epoch=1, raises_epoch=True)
    producing.abort(epoch=1)

    assert producing.append(epoch=1, guard=guard) is None


def test_guard_goes_where_epochs_are_not_raised(producing: Producing) -> None:
    guard = producing.ask(epoch=1)
    producing.abort(epoch=1)

    assert producing.refusal(epoch=1, guard=guard) is InvalidTxnState


def test_later_batch_waits_for_one_that_is_asked_about(producing: Producing) -> None:
    """§40.3.4: the first one may yet fail, and come again."""
    guard = producing.ask(0)
    producing.ask(1)

    assert producing.refusal(1, guard=guard) is OutOfOrderSequenceNumber
    assert producing.append(0, guard=guard) is None
    assert producing.append(1) is None


@pytest.mark.parametrize("first", [0, LAST - 1])
@pytest.mark.parametrize("late", range(3))
def test_late_duplicate_leaves_no_guard_behind(first: int, late: int) -> None:
    """§40.3.6: the question about it is refused when its transaction is over, and the next one begins behind it."""
    producing = Producing()
    producing.append(first, guard=producing.ask(first))
    second, third, fourth = (first + n & LAST for n in (1, 2, 3))
    producing.append(second)
    producing.append(third)
    producing.abort()
    guard = producing.ask((first, second, third)[late])
    assert guard is not None, "the coordinator is asked, as by Kafka"

    assert producing.append(fourth, guard=producing.ask(fourth)) is None
    assert producing.append((first, second, third)[late], guard=guard) == DuplicateOf(late, late, 1000)


def test_late_duplicate_does_not_lower_a_guard(producing: Producing) -> None:
    producing.append(guard=producing.ask())
    producing.abort()
    guard = producing.ask(1)
    late = producing.ask(0)

    assert producing.refusal(2, guard=producing.ask(2)) is OutOfOrderSequenceNumber
    assert producing.append(0, guard=late) == DuplicateOf(0, 0, 1000)
    assert producing.append(1, guard=guard) is None


def test_guard_of_a_late_batch_begins_nothing(producing: Producing) -> None:
    """Of one that is no duplicate any more: five have come since. Kafka 4.1 was asked."""
    producing.append(guard=producing.ask())
    for sequence in range(1, 7):
        producing.append(sequence)
    producing.abort()

    assert producing.refusal(0, guard=producing.ask(0)) is OutOfOrderSequenceNumber
    assert producing.append(7, guard=producing.ask(7)) is None


def test_guard_of_a_late_batch_is_none_of_a_forgotten_producer(producing: Producing) -> None:
    """Its sequence says nothing any more."""
    producing.append(guard=producing.ask())
    producing.abort()
    late = producing.ask(0)
    producing.producers.clear()

    assert producing.refusal(0, guard=late) is InvalidTxnState


def test_new_producer_with_raised_epochs_begins_at_zero(producing: Producing) -> None:
    """§40.4 row 5; below v12 any sequence will do of a producer that is not known."""
    guard = producing.ask(3, raises_epoch=True)
    assert producing.refusal(3, guard=guard) is OutOfOrderSequenceNumber

    other = Producing()
    assert other.append(3, guard=other.ask(3)) is None


def test_older_epoch_is_refused_before_its_guard_is_looked_at(producing: Producing) -> None:
    """§40.4.1: INVALID_TXN_STATE would be fatal to several clients."""
    producing.append(epoch=1, guard=producing.ask(epoch=1))

    assert producing.refusal(epoch=0) is InvalidProducerEpoch
    with pytest.raises(InvalidProducerEpoch):
        producing.ask(epoch=0)


def test_newer_epoch_in_an_open_transaction_is_asked_about(producing: Producing) -> None:
    producing.append(guard=producing.ask())

    guard = producing.ask(epoch=1)
    assert guard is not None
    assert producing.refusal(epoch=1) is InvalidTxnState
    assert producing.append(epoch=1, guard=guard) is None


def test_repetition_needs_no_guard(producing: Producing) -> None:
    """§40.4 row 1: also after its transaction has ended."""
    producing.append(guard=producing.ask())
    producing.abort()

    assert producing.append() == DuplicateOf(0, 0, 1000)


def test_without_verification_any_batch_begins_a_transaction(producing: Producing) -> None:
    """§40.4.2"""
    assert producing.append(guard=NOT_VERIFIED) is None
    assert producing.ask(1) is None


def test_plain_batch_in_an_open_transaction_is_refused(producing: Producing) -> None:
    producing.append(guard=producing.ask())

    assert producing.refusal(1, plain=True) is InvalidTxnState


@pytest.mark.parametrize("is_known", [False, True])
def test_plain_batch_does_not_overtake_a_refused_one(producing: Producing, is_known: bool) -> None:
    """As on Kafka: the batch that was asked about may come again, also where the producer is new."""
    if is_known:
        producing.append(0, plain=True)
    following = producing.end
    producing.ask(following)

    assert producing.refusal(following + 1, plain=True) is OutOfOrderSequenceNumber
    assert producing.append(following, plain=True) is None
    assert producing.refusal(following + 1, plain=True) is OutOfOrderSequenceNumber


def test_offsets_in_a_transaction_have_no_sequence(producing: Producing) -> None:
    """§40.4.3: two batches of them are not each other's repetition."""
    guard = producing.ask(-1)

    assert producing.append(-1, guard=guard) is None
    assert producing.append(-1) is None
    assert producing.end == 2


@pytest.mark.parametrize("event", ["a replicated batch", "time", "an empty log"])
def test_guard_is_dropped_by(producing: Producing, event: str) -> None:
    """§40.3.3"""
    guard = producing.ask()
    match event:
        case "a replicated batch":
            producing.replicate()
            producing.abort()
        case "time":
            assert producing.producers.expire(EXPIRATION_MS - 1).expired == []
            assert producing.ask() is guard
            producing.producers.expire(EXPIRATION_MS)
        case _:
            producing.producers.clear()

    assert producing.ask() is not guard
    assert producing.refusal(1, guard=guard) is InvalidTxnState


def test_a_guard_of_a_past_term_makes_the_producer_ask_again(producing: Producing) -> None:
    """§40.3.3"""
    past = producing.ask()
    producing.producers.drop_guards()
    present = producing.ask()

    assert producing.refusal(guard=past) is NotLeaderOrFollower
    assert producing.append(guard=present) is None


def test_all_guards_that_are_too_old_expire_at_once() -> None:
    guards = VerificationGuards()
    for producer_id in range(GUARDS_MAX):
        guards.take(producer_id, 0, 0, producer_id % 2, raises_epoch=False)

    guards.expire(EXPIRATION_MS, EXPIRATION_MS)
    assert list(guards.waiting) == [*range(1, GUARDS_MAX, 2)]

    guards.expire(EXPIRATION_MS + 1, EXPIRATION_MS)
    assert not guards.waiting


def test_an_emptied_marker_verifies_nothing(producing: Producing) -> None:
    """A replica that was away while the marker was deleted (§45.5) takes the transaction for open: the producer's next
    one must be asked about all the same."""
    producing.append(guard=producing.ask())
    producing.abort(epoch=1, emptied=True)

    guard = producing.ask(epoch=1)
    assert guard is not None
    assert producing.append(epoch=1, guard=guard) is None
    assert producing.ask(1, epoch=1) is None


def test_an_emptied_marker_raises_the_epoch_otherwise(producing: Producing) -> None:
    producing.abort(epoch=3, emptied=True)

    with pytest.raises(InvalidProducerEpoch):
        producing.ask(epoch=2)


def test_the_oldest_guard_goes_where_there_are_too_many(producing: Producing) -> None:
    """§13.9. Its batch, which waits for the coordinator, is sent again and asks again: nothing is lost."""
    guard = producing.ask()
    for made_up in range(1_000, 1_000 + GUARDS_MAX):
        producing.producers.begin_verification(made_up, 0, 0, 0, raises_epoch=False)

    assert len(producing.producers._guards.waiting) == GUARDS_MAX
    assert producing.refusal(guard=guard) is NotLeaderOrFollower
    again = producing.ask()
    assert again is not guard
    assert producing.append(guard=again) is None
    assert len(producing.producers._guards.waiting) == GUARDS_MAX - 1
