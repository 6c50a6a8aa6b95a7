"""What coordinators have decided, as far as it is committed, and what has to agree with it after every step.

The log of `__transaction_state` is read on whenever a leader's high watermark rises. So a state counts from the moment
at which no failure can undo it any more: only then may markers be written and clients be answered (I-35 to I-38).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.coordinator.transactions import entry
from ottla.coordinator.transactions.entry import VALID_PREVIOUS, TransactionMetadata, TransactionState
from ottla.coordinator.transactions.participants import Participant
from ottla.coordinator.transactions.records import parse_transaction_key, parse_transaction_value
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.control import marker_of
from ottla.protocol.records.record import iterate_records
from tests.simulation.judge import Judge


class Decision(NamedTuple):
    """With the epoch of its markers. Without KIP-890 the transactions of a producer have one epoch, and so one of these
    for each outcome."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


class Decided(NamedTuple):
    """A transaction that is not complete yet."""

    decision: Decision
    state: TransactionMetadata
    coordinator_index: int
    missing: set[Participant]
    """Partitions of it in which no marker has been replicated yet, and which have not been deleted either."""


class ControlBatch(NamedTuple):
    where: Participant
    offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int


class OpenTransaction(NamedTuple):
    """In the leader of a partition."""

    first_offset: int
    epoch: int


class Decisions:
    def __init__(self, judge: Judge, committed_end: Callable[[Participant], int]) -> None:
        """`committed_end`: up to where a partition is replicated."""
        self._judge = judge
        self._committed_end = committed_end
        self._read_to: Counter[int] = Counter()
        # By transactional id, and by each producer id that it had.
        self._states: dict[str, TransactionMetadata] = {}
        self._index_of: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._made: Counter[Decision] = Counter()
        self._answered: Counter[Decision] = Counter()
        self._participants: dict[Decision, set[Participant]] = {}
        self._markers: dict[tuple[Participant, Decision], set[int]] = {}
        # Markers that compaction has emptied in any replica.
        self._emptied: set[ControlBatch] = set()
        # Within the step that is looked at: its parts are looked at in any order.
        self._written: list[tuple[ControlBatch, bool]] = []
        self._completed: list[tuple[str, Decided]] = []
        # By transactional id.
        self._decided: dict[str, Decided] = {}
        self._is_blind = False

    # What is seen of a step.

    def read_on(self, replica: Any) -> None:
        """The leader of a partition of `__transaction_state` has committed more."""
        log, end_offset = replica.log, replica.high_watermark
        if self._is_blind:
            return
        with log.files.nothing_fails():
            while self._read_to[replica.index] < end_offset:
                offset = max(self._read_to[replica.index], log.log_start_offset)
                chunk = log.read(offset, 1 << 20, upper_bound=end_offset, min_one_batch=True, wait=True)
                for position, header in iterate_batches(chunk.records):
                    if header.base_offset >= offset:
                        self._take(chunk.records[position : position + header.size_bytes], replica.index)
                # Compaction may have left nothing.
                self._read_to[replica.index] = chunk.end_offset if chunk.records else end_offset

    def marker_came(self, where: Participant, header: BatchHeader, content: memoryview) -> None:
        """To any replica."""
        marker, epoch = marker_of(content), header.partition_leader_epoch
        batch = ControlBatch(where, header.base_offset, epoch, header.producer_id, header.producer_epoch)
        if marker is None:
            self._emptied.add(batch)
        else:
            self._written.append((batch, marker.is_commit))

    def note_deleted(self, index: int, held: Mapping[str, Any], find: Callable[[str, int], Any]) -> None:
        """A coordinator holds these entries, and its broker's metadata finds None for a partition that was deleted: it
        needs no marker of a transaction that is decided (§13.5.4). One that was deleted and made again before needs it,
        and so does one of which only other brokers know that it was deleted."""
        for transactional_id, decided in self._decided.items():
            entry = held.get(transactional_id) if decided.coordinator_index == index else None
            if entry is not None and entry.metadata == decided.state:
                decided.missing.difference_update([where for where in decided.missing if find(*where) is None])

    def lose_sight(self) -> None:
        """A disk has rotted: a leader may have committed what cannot be read."""
        self._is_blind = True

    def _take(self, batch: memoryview, index: int) -> None:
        for record in iterate_records(batch):
            transactional_id = parse_transaction_key(bytes(record.key or b""))
            if transactional_id is None:
                continue
            if record.value is None:
                self._states.pop(transactional_id, None)
                self._decided.pop(transactional_id, None)
                continue
            state = parse_transaction_value(bytes(record.value))
            self._index_of[transactional_id] = index
            self._change(transactional_id, self._states.get(transactional_id), state)

    def _change(self, transactional_id: str, before: TransactionMetadata | None, state: TransactionMetadata) -> None:
        if before is not None and before.state not in VALID_PREVIOUS[state.state]:
            self._violated("I-35", f"{transactional_id}: {before.state.name} became {state.state.name}")
        self._states[transactional_id] = state
        self._ids[state.producer_id] = transactional_id
        decision = Decision(state.producer_id, state.producer_epoch, state.state is TransactionState.PREPARE_COMMIT)
        if state.is_decided:
            if state.client_version and decision._replace(is_commit=not decision.is_commit) in self._made:
                self._violated("I-35", f"{transactional_id}: both outcomes of {decision} were decided")
            self._made[decision] += 1
            self._participants.setdefault(decision, set()).update(state.partitions)
            self._decided[transactional_id] = Decided(
                decision, state, self._index_of[transactional_id], set(state.partitions)
            )
            self._judge.counts["decisions"] += 1
        elif transactional_id in self._decided:
            self._completed.append((transactional_id, self._decided.pop(transactional_id)))

    # What has to hold after it.

    def end_step(self) -> None:
        """The step has been seen whole."""
        for batch, is_commit in self._written:
            self._check_marker(batch, Decision(batch.producer_id, batch.producer_epoch, is_commit))
        self._written.clear()
        for decided in self._decided.values():
            self._note_replicated(decided)
        for transactional_id, decided in self._completed:
            self._note_replicated(decided)
            for where in sorted(decided.missing):
                self._violated("I-36", f"{transactional_id} is complete, {where} has no marker of {decided.decision}")
        self._completed.clear()

    def _check_marker(self, batch: ControlBatch, decision: Decision) -> None:
        where = batch.where
        if decision.producer_id in self._ids and not self._has_part(where, decision):
            if self._replaces_emptied(batch, decision):
                return
            self._violated("I-36", f"{where} has a marker of {decision} at {batch.offset}, which was not decided")
        self._markers.setdefault((where, decision), set()).add(batch.offset)

    def _has_part(self, where: Participant, decision: Decision) -> bool:
        return where in self._participants.get(decision, ())

    def _replaces_emptied(self, batch: ControlBatch, decision: Decision) -> bool:
        """A replica that was away until a COMMIT was emptied has an ABORT at its offset (§45.5)."""
        is_abort, committed = not decision.is_commit, decision._replace(is_commit=True)
        return is_abort and batch in self._emptied and self._has_part(batch.where, committed)

    def _note_replicated(self, decided: Decided) -> None:
        """A topic that is deleted later takes its markers along."""
        for where in tuple(decided.missing):
            offsets = self._markers.get((where, decided.decision))
            if offsets and min(offsets) < self._committed_end(where):
                decided.missing.remove(where)

    def ended(self, pair: tuple[int, int], *, commit: bool) -> None:
        """EndTxn was answered without an error: it is decided, by the epoch of its data or, of KIP-890, the next."""
        decisions = [Decision(pair[0], epoch, commit) for epoch in (pair[1], pair[1] + 1)]
        self._answered[decisions[0]] += 1
        if sum(self._made[each] for each in decisions) < self._answered[decisions[0]]:
            self._violated("I-37", f"the end of {decisions[0]} was answered, and it is not committed")

    def is_open(self, transactional_id: str, pair: tuple[int, int]) -> bool:
        """Whether a producer with this id and epoch is in a transaction that nothing has ended."""
        state = self._states.get(transactional_id)
        if self._is_blind or state is None or state.state is not TransactionState.ONGOING:
            return False
        return (state.producer_id, state.producer_epoch) == pair

    def check_open(self, where: Participant, found: dict[int, OpenTransaction], high_watermark: int) -> None:
        """In the leader of a partition, by producer id: what is committed of an open transaction belongs to one that
        its coordinator knows, and is going to end; and there is one of each transactional id."""
        open_ids = [self._ids[producer_id] for producer_id in found if producer_id in self._ids]
        if len(open_ids) > len(set(open_ids)):
            self._violated("I-31", f"{where}: several transactions of one of {open_ids} are open")
        for producer_id, open_here in found.items():
            if open_here.first_offset >= high_watermark or producer_id not in self._ids:
                continue
            state = self._states.get(self._ids[producer_id])
            self._judge.counts["open transactions checked"] += 1
            if state is None or not _will_end(state, where, producer_id, open_here.epoch):
                self._violated("I-38", f"{where} has {open_here} of {producer_id}, its coordinator has {state}")

    def check_coordinator(self, index: int, high_watermark: int, known: dict[str, TransactionMetadata]) -> None:
        """What a coordinator knows of its ids that has nothing under way is what its log says (I-17)."""
        if self._read_to[index] != high_watermark:
            return
        committed = {name: state for name, state in self._states.items() if self._index_of[name] == index}
        self._judge.counts["coordinators compared"] += 1
        if known != committed:
            self._violated("I-17", f"the coordinator {index} has {known}, committed is {committed}")

    def _violated(self, invariant: str, how: str) -> None:
        if not self._is_blind:
            self._judge.violated(invariant, how)


def _will_end(state: TransactionMetadata, where: Participant, producer_id: int, epoch: int) -> bool:
    """Whether the transaction that is open there is the one that the coordinator has, in Ongoing or decided. What
    fences its producer, or ends it by KIP-890, is decided with the next epoch."""
    if state.is_idle or where not in state.partitions or state.producer_id != producer_id:
        return False
    if not state.is_decided:
        return state.producer_epoch == epoch
    is_next = state.producer_epoch == min(epoch + 1, entry.EPOCH_MAX)
    return is_next or (not state.client_version and state.producer_epoch == epoch)
