"""What a partition remembers of its idempotent producers, so that a batch sent twice is stored once.

Per producer id: its epoch and its last five batches. A retry that equals one of them is answered with the offset that
the first try got. Five, because a producer may have five requests in flight on a connection, and any of them may come
again. Everything else must follow on what came before, or the producer has lost something and gets an error.

A producer with a transactional id has at most one transaction open here (`transactions`); the marker that ends it says
which coordinator has sent it, so that an older one is known from it.

The first batch of a transaction presents a guard (`verification_guards`).

The order of use: `check` or `check_marker` before the offset is assigned, `update` or `update_by_marker` once it is;
then `confirm` when the batch is written, or `undo` when it could not be. `replay` does for batches read from the log
what the updates do for new ones, unchecked.
Snapshots are Kafka's `.snapshot` files; they hold only the last batch of each producer, as Kafka's do. Those before it
are read from the log when they are missed (`producer_tail`).

A client can get as many producer ids as it likes, and all of them are remembered for a day. So nothing is done for all
producers at once (`producer_table`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from ottla.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from ottla.protocol.records.control import TransactionMarker, marker_of
from ottla.storage.producer_entry import (
    BATCHES_KEPT,
    NO_OFFSET,
    SEQUENCE_MASK,
    ProducerBatch,
    ProducerState,
)
from ottla.storage.producer_pages import ExpirySlice
from ottla.storage.producer_snapshot import decode_snapshot, encode_snapshot, open_transactions
from ottla.storage.producer_table import ProducerTable
from ottla.storage.transactions import AbortedTxn, OldestTransaction, Transactions
from ottla.storage.verification_guards import NOT_VERIFIED, VerificationGuard, VerificationGuards

EXPIRATION_MS = 86400000
"""The default of `producer.id.expiration.ms`."""


class DuplicateOf(NamedTuple):
    """The batch that was appended when the producer sent this one first."""

    first_offset: int
    last_offset: int
    timestamp: int


class ProducerStateManager:
    """The producers of one partition."""

    def __init__(self, expiration_ms: int = EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        self.snapshot_offset: int | None = None
        """Of the batches below it, only the last one of each producer is known; the log may have more."""
        self._table = ProducerTable()
        # The table's own, at hand for every batch.
        self._recent = self._table.recent
        # Invariant: holds, for each producer changed since the last `confirm`, what it was then, or None.
        self._unconfirmed: dict[int, ProducerState | None] = {}
        self._guards = VerificationGuards()
        self._transactions = Transactions()

    @property
    def states(self) -> ProducerTable:
        """Every remembered producer by its id; not to be changed."""
        return self._table

    @property
    def has_transactions(self) -> bool:
        """Whether any is open, or has ended and was not known to be over when the stable offset was last asked for."""
        return bool(self._transactions)

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """First offsets by producer id, rising."""
        return MappingProxyType(self._transactions.open)

    @property
    def oldest_transaction(self) -> OldestTransaction | None:
        """The open transaction with the smallest first offset."""
        for producer_id, first_offset in self._transactions.open.items():
            state = self._table[producer_id]
            return OldestTransaction(producer_id, state.epoch, first_offset, state.seen_ms)
        return None

    def __len__(self) -> int:
        return len(self._table)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_wall_ms: int, *, raises_epoch: bool
    ) -> VerificationGuard | None:
        """Before a transactional batch: the guard to present with it when its coordinator has answered (§40.2.1).

        None: the transaction is open here, so that no question is needed. `sequence` is the first one of the batch, or
        -1. Raises InvalidProducerEpoch."""
        state = self._table.find(producer_id)
        if state is not None:
            if epoch < state.epoch:
                raise _of_an_older_epoch(producer_id, epoch, state.epoch)
            # Without a batch of this epoch, what is open is of an earlier one, of which the marker has come emptied.
            if epoch == state.epoch and state.batches:
                if state.transaction_first_offset >= 0:
                    return None
                if sequence >= 0 and _precedes(sequence, state.batches[-1].last_sequence):
                    # Of a transaction that may be over.
                    return VerificationGuard(epoch, sequence, now_wall_ms, raises_epoch=raises_epoch, is_late=True)
        return self._guards.take(producer_id, epoch, sequence, now_wall_ms, raises_epoch=raises_epoch)

    def drop_guards(self) -> None:
        """Another broker leads, or this one in another term: what was asked about before counts no more."""
        self._guards.end_term()

    def check(self, header: BatchHeader, guard: VerificationGuard | None = None) -> DuplicateOf | None:
        """What a batch is: new (None), or the repetition of one that is in the log already.

        `guard` is what the first batch of a transaction presents, `NOT_VERIFIED` where none is asked for. Raises
        InvalidTxnState, InvalidProducerEpoch, OutOfOrderSequenceNumber; NotLeaderOrFollower for a guard that was
        given up. A repetition is recognised before any of them: the answer to the first try was lost, and
        the producer may have gone on since.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        state = self._recent.get(producer_id) or self._table.find_packed(producer_id)
        if state is None:
            # A producer that wrote here long ago, or never: there is nothing to compare its sequence with.
            is_plain = not header.attributes & TRANSACTIONAL_BIT and producer_id not in self._guards.waiting
            if is_plain and header.producer_epoch >= NO_PRODUCER_EPOCH:
                return None
            state = _UNKNOWN
        elif state.epoch == header.producer_epoch and state.batches and header.base_sequence >= 0:
            # What follows on the last batch cannot be one of the last five.
            if header.base_sequence == (state.batches[-1].last_sequence + 1) & SEQUENCE_MASK:
                is_plain = not header.attributes & TRANSACTIONAL_BIT and state.transaction_first_offset < 0
                # A batch that waits to be verified, or was refused, is not overtaken by a plain one either.
                if is_plain and producer_id not in self._guards.waiting:
                    return None
            elif duplicate := _find_duplicate(state, header.base_sequence, header.last_sequence):
                return duplicate
        kept = self._guards.get(producer_id)
        _check_order(producer_id, state, header, kept, guard)
        return None

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: TransactionMarker, transaction_version: int
    ) -> None:
        """Whether a marker may be appended (§39.2). A repeated one may: its first answer was lost, and it ends nothing.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced. From transaction version 2 on, each end of a
        transaction raises the epoch: a marker with the epoch of the open transaction belongs to the one before it.
        """
        state = self._table.find(producer_id)
        if state is None:
            return
        is_late = transaction_version >= 2 and producer_epoch == state.epoch and state.transaction_first_offset >= 0
        if producer_epoch < state.epoch or is_late:
            raise _of_an_older_epoch(producer_id, producer_epoch, state.epoch)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"coordinator epoch {marker.coordinator_epoch}, {state.coordinator_epoch} was seen"
            )

    def update(self, header: BatchHeader, base_offset: int, now_wall_ms: int) -> None:
        """Remember a batch, not a control batch, that was given `base_offset` and is about to be written; without
        producer id, nothing."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        before = self._recent.get(producer_id) or self._table.take_packed(producer_id)
        if producer_id not in self._unconfirmed:
            self._unconfirmed[producer_id] = before
        after = self._recent[producer_id] = _after_batch(before, header, base_offset, now_wall_ms)
        if header.attributes & TRANSACTIONAL_BIT:
            self._guards.drop(producer_id)
        if after.transaction_first_offset == base_offset:
            self._transactions.begin(producer_id, base_offset)

    def update_by_marker(
        self, header: BatchHeader, marker: TransactionMarker | None, base_offset: int, now_wall_ms: int
    ) -> AbortedTxn | None:
        """As `update`, of a control batch. The entry for the index if it has aborted a transaction."""
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        before = self._recent.get(producer_id) or self._table.take_packed(producer_id)
        if producer_id not in self._unconfirmed:
            self._unconfirmed[producer_id] = before
        self._recent[producer_id] = _after_marker(before, header, marker, now_wall_ms)
        self._guards.drop_by_marker(producer_id, header.producer_epoch)
        if marker is None or producer_id not in self._transactions.open:
            return None
        entry = self._transactions.end(producer_id, base_offset)
        return None if marker.is_commit else entry

    def confirm(self) -> None:
        """Everything updated so far is in the log."""
        self._unconfirmed.clear()
        if self._transactions.unconfirmed:
            self._transactions.confirm()
        if len(self._recent) > self._table.recent_max:
            self._table.pack_oldest()

    def undo(self) -> None:
        """Nothing that was updated since `confirm` came into the log: forget it."""
        for producer_id, before in self._unconfirmed.items():
            if before is None:
                del self._recent[producer_id]
            else:
                self._recent[producer_id] = before
        self._unconfirmed.clear()
        self._transactions.undo()

    def replay(self, batch: Buffer, header: BatchHeader, now_wall_ms: int) -> AbortedTxn | None:
        """Take in a batch of the log, with its real offsets: on recovery, after a truncation.

        The entry for the index if it has aborted a transaction."""
        aborted = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                aborted = self.update_by_marker(header, marker_of(batch), header.base_offset, now_wall_ms)
            else:
                self.update(header, header.base_offset, now_wall_ms)
            self.confirm()
        return aborted

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """See `Transactions.last_stable_offset`."""
        return self._transactions.last_stable_offset(high_watermark, log_start_offset)

    def knows_ends_above(self, high_watermark: int) -> bool:
        """Whether it is known which transactions have ended by a marker at or above the high watermark."""
        return high_watermark >= self._transactions.ends_known_from

    def expire(self, now_wall_ms: int, from_id: int | None = None) -> ExpirySlice:
        """Forget producers that have not written for the expiration time and have no open transaction: a slice of them,
        from the beginning or from where the last slice said."""
        kept = self._transactions.open.keys() | self._unconfirmed.keys()
        if from_id is None:
            self._guards.expire(now_wall_ms, self.expiration_ms)
        return self._table.expire(now_wall_ms - self.expiration_ms, kept, from_id)

    def clear(self) -> None:
        """Forget everything: the log has been emptied, or is about to be replayed."""
        self._begin_with(ProducerTable())

    def _begin_with(self, table: ProducerTable) -> None:
        self._table, self._recent = table, table.recent
        self.snapshot_offset = None
        self._unconfirmed.clear()
        self._guards.clear()
        self._transactions = Transactions()

    def add_batches_before(self, earlier: ProducerTable) -> None:
        """After `load` and `replay`: a snapshot has one batch of each producer, and `earlier` up to four that precede
        it. They may come again too."""
        for producer_id in earlier.ids_with_batches():
            before = earlier[producer_id]
            state = self._recent.get(producer_id) or self._table.take_packed(producer_id)
            if state is not None:
                self._recent[producer_id] = _with_batches_before(state, before)
            unconfirmed = self._unconfirmed.get(producer_id)
            if unconfirmed is not None:
                self._unconfirmed[producer_id] = _with_batches_before(unconfirmed, before)
            if not self._unconfirmed:
                self.confirm()

    def snapshot_bytes(self) -> bytes:
        """The contents of a `.snapshot` file for the log end offset of now."""
        return b"".join(encode_snapshot(self._table.entries()))

    def load(self, snapshot: bytes, now_wall_ms: int, snapshot_offset: int) -> None:
        """Replace everything by what the snapshot at `snapshot_offset` holds. Raises CorruptSnapshot, and then changes
        nothing.

        Each producer counts as seen now: how long it has been silent stands in no file.
        """
        entries = decode_snapshot(snapshot)
        self._begin_with(ProducerTable.of_entries(entries, now_wall_ms))
        self.snapshot_offset = snapshot_offset if len(self._table) else None
        for first_offset, producer_id in sorted(open_transactions(entries)):
            self._transactions.begin(producer_id, first_offset)
        self._transactions.confirm()
        self._transactions.ends_known_from = snapshot_offset


# The calls of these classes do the same in Python; two are made for every batch of an idempotent producer.
_new_batch: Callable[[tuple[int, int, int, int, int]], ProducerBatch] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType] - typeshed leaves the tuple's items open here.
    ProducerBatch,
)
_new_state: Callable[[tuple[int, tuple[ProducerBatch, ...], int, int, int, int]], ProducerState] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType] - as above.
    ProducerState,
)


def _after_marker(
    before: ProducerState | None, header: BatchHeader, marker: TransactionMarker | None, now_wall_ms: int
) -> ProducerState:
    """The end of a transaction closes it. A control batch that compaction has emptied says the epoch alone."""
    same_epoch = before is not None and before.epoch == header.producer_epoch
    coordinator_epoch = before.coordinator_epoch if before is not None else -1
    first_offset = before.transaction_first_offset if before is not None and marker is None else NO_OFFSET
    return ProducerState(
        epoch=header.producer_epoch,
        batches=before.batches if before is not None and same_epoch else (),
        last_timestamp=header.max_timestamp,
        coordinator_epoch=coordinator_epoch if marker is None else marker.coordinator_epoch,
        transaction_first_offset=first_offset,
        seen_ms=now_wall_ms,
    )


def _after_batch(
    before: ProducerState | None, header: BatchHeader, base_offset: int, now_wall_ms: int
) -> ProducerState:
    _, _, _, _, _, attributes, delta, _, timestamp, _, epoch, sequence, _ = header
    # Offsets committed in a transaction have a producer id and no sequence.
    last_sequence = (sequence + delta) & SEQUENCE_MASK if sequence >= 0 else sequence
    batch = _new_batch((sequence, last_sequence, base_offset, base_offset + delta, timestamp))
    batches: tuple[ProducerBatch, ...] = (batch,)
    coordinator_epoch, transaction = -1, NO_OFFSET
    if before is not None:
        before_epoch, before_batches, _, coordinator_epoch, transaction, _ = before
        if before_epoch == epoch:
            batches = (*before_batches[1 - BATCHES_KEPT :], batch)
    if transaction < 0 and attributes & TRANSACTIONAL_BIT:
        transaction = base_offset
    return _new_state((epoch, batches, timestamp, coordinator_epoch, transaction, now_wall_ms))


def _find_duplicate(state: ProducerState, first_sequence: int, last_sequence: int) -> DuplicateOf | None:
    for batch in state.batches:
        if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
            return DuplicateOf(batch.first_offset, batch.last_offset, batch.timestamp)
    return None


def _precedes(sequence: int, last_sequence: int) -> bool:
    """Whether it is that of a batch up to the last one, or comes later. After 2147483647 comes 0."""
    return (last_sequence - sequence) & SEQUENCE_MASK <= SEQUENCE_MASK >> 1


_UNKNOWN = ProducerState(epoch=NO_PRODUCER_EPOCH)


def _check_order(
    producer_id: int,
    state: ProducerState,
    header: BatchHeader,
    kept: VerificationGuard | None,
    presented: VerificationGuard | None,
) -> None:
    """Of a batch that repeats none (§40.4)."""
    epoch, transactional = header.producer_epoch, header.attributes & TRANSACTIONAL_BIT
    if epoch < state.epoch:
        raise _of_an_older_epoch(producer_id, epoch, state.epoch)
    is_open = state.transaction_first_offset >= 0
    begins = transactional and not (is_open and epoch == state.epoch)
    if begins and presented is not NOT_VERIFIED and (presented is None or presented is not kept):
        if presented is not None and presented.is_given_up:
            raise NotLeaderOrFollower(f"the transaction of producer {producer_id} is to be asked about again")
        if presented is not None and presented.is_late:
            _check_sequence(producer_id, state, header, kept)
        raise InvalidTxnState(f"no transaction of producer {producer_id} is known to this partition")
    # Offsets committed in a transaction have no sequence.
    if header.base_sequence >= 0:
        _check_sequence(producer_id, state, header, kept)
    if is_open and not transactional:
        raise InvalidTxnState(f"producer {producer_id} has an open transaction, and this batch is not part of one")


def _check_sequence(
    producer_id: int, state: ProducerState, header: BatchHeader, kept: VerificationGuard | None
) -> None:
    epoch, sequence = header.producer_epoch, header.base_sequence
    if kept is not None:
        lowest = 0 if kept.raises_epoch and not state.batches else kept.lowest_sequence
        if sequence > lowest:
            raise OutOfOrderSequenceNumber(
                f"sequence {sequence} of producer {producer_id} in epoch {epoch}, {lowest} is to be verified first"
            )
    expected = 0
    if epoch == state.epoch and state.batches:
        expected = (state.batches[-1].last_sequence + 1) & SEQUENCE_MASK
    if sequence != expected and state.epoch != NO_PRODUCER_EPOCH:
        raise OutOfOrderSequenceNumber(
            f"sequence {sequence} of producer {producer_id} in epoch {epoch}, {expected} expected"
        )


def _of_an_older_epoch(producer_id: int, epoch: int, seen: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(f"epoch {epoch} of producer {producer_id}, {seen} was seen")


def _with_batches_before(state: ProducerState, earlier: ProducerState) -> ProducerState:
    if not state.batches or earlier.epoch != state.epoch:
        return state
    oldest = state.batches[0]
    for position, batch in enumerate(earlier.batches):
        if (batch.last_sequence, batch.last_offset) == (oldest.last_sequence, oldest.last_offset):
            return state._replace(batches=(*earlier.batches[:position], *state.batches)[-BATCHES_KEPT:])
    return state
