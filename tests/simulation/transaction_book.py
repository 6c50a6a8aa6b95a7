"""What clients know of their transactions, and what that allows readers of committed records to see (I-21, I-22, I-24).

A record is known by its value, which is written in one transaction. A transaction whose commit was never asked for, or
only after its producer had been replaced, is never seen; one whose commit was answered is seen whole, each record once;
of one in doubt everything is seen, or nothing. What was deleted since, or has a later record of its key where the topic
is compacted, need not be there in the end.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from tests.simulation.judge import Judge

Partition = tuple[str, int]
Pair = tuple[int, int]
"""Producer id and epoch."""
NO_PAIR: Pair = (-1, -1)
NEVER = -1
# What a client has hung up on may reach the broker so much later, when that has been paused or cut off.
LATEST_ARRIVAL_MS = 60_000


@dataclass
class Transaction:
    transactional_id: str
    pair: Pair
    number: int
    """Of all transactions of all producers; the offset that it commits."""
    began_us: int
    """Before the first request of it was sent."""
    values: dict[Partition, list[str]] = field(default_factory=dict)
    commits_offset: bool = False
    inputs: range = range(0)
    """What it copies, of a producer that consumes, transforms and produces; it commits the offset behind them."""
    asked_to_commit: bool = False
    asked_to_end: bool = False
    was_replaced: bool = False
    """When its end was asked for."""
    has_pending_offset: bool = False
    """The group's coordinator has said so."""
    is_committed: bool | None = None
    """None: in doubt, or not decided."""
    seen: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    """Seen in the end."""

    @property
    def may_be_seen(self) -> bool:
        return self.asked_to_commit and self.is_committed is not False

    @property
    def written(self) -> set[str]:
        return {value for values in self.values.values() for value in values}

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.transactional_id} {self.pair}"


@dataclass
class Line:
    """All producers of one transactional id, one after the other; two of them where one replaces the other."""

    latest: Pair = NO_PAIR
    """Of all that were handed out."""
    producer_ids: list[int] = field(default_factory=list)
    """In the order in which they were handed out: they need not rise, as each broker has a block of its own."""
    rivals: int = 1
    copies: bool = False
    """Its offset is not the number of a transaction, but how many inputs it has copied."""
    unanswered_until_us: int = NEVER
    """A request for a producer id and epoch that its client has given up may still be served until then."""

    def is_later(self, one: Pair, other: Pair) -> bool:
        return self.place(one) > self.place(other)

    def place(self, pair: Pair) -> Pair:
        return (-1 if pair == NO_PAIR else self.producer_ids.index(pair[0])), pair[1]


class TransactionBook:
    def __init__(self, judge: Judge, partitions: list[Partition], *, loses_records: bool) -> None:
        """`loses_records`: the topic is compacted, or records of it are deleted."""
        self.partitions = partitions
        self._loses_records = loses_records
        # Offsets of records of which a replica cannot know what became of their transaction.
        self.undecided_in: Callable[[Partition], Set[int]] = lambda partition: frozenset()
        self.transactions: list[Transaction] = []
        self.lines: dict[str, Line] = {}
        self._judge = judge
        self._of_value: dict[str, Transaction] = {}
        self._keys: dict[str, bytes] = {}
        self._offsets: dict[tuple[Partition, str], int] = {}

    # What producers do.

    def begin(self, transactional_id: str, pair: Pair) -> Transaction:
        number = len(self.transactions) + 1
        self.transactions.append(Transaction(transactional_id, pair, number, self._judge.trace.now_us()))
        return self.transactions[-1]

    def write(self, transaction: Transaction, partition: Partition, keys: list[bytes]) -> list[str]:
        """One value for each key."""
        written = transaction.values.setdefault(partition, [])
        first = len(transaction.written)
        values = [f"{transaction.number}/{first + number}" for number in range(len(keys))]
        written += values
        self._of_value.update(dict.fromkeys(values, transaction))
        self._keys.update(zip(values, keys, strict=True))
        return values

    def written_at(self, partition: Partition, values: list[str], base_offset: int) -> None:
        """As it was acknowledged; -1 for a repetition whose offset is not known any more."""
        if base_offset >= 0:
            self._offsets.update(((partition, value), base_offset + n) for n, value in enumerate(values))

    def handed_out(self, transactional_id: str, pair: Pair, known_before: Pair) -> None:
        """`known_before`: the latest when the request was sent."""
        line = self.lines[transactional_id]
        if pair[0] not in line.producer_ids:
            self._judge.producer_id_given(pair[0], transactional_id)
            self._judge.counts["producer ids replaced"] += bool(line.producer_ids)
            line.producer_ids.append(pair[0])
        if not line.is_later(pair, known_before):
            self._judge.violated("I-8", f"{transactional_id} was given {pair} after {known_before}")
        if line.is_later(pair, line.latest):
            line.latest = pair

    def is_replaced(self, transaction: Transaction) -> bool:
        line = self.lines[transaction.transactional_id]
        return line.is_later(line.latest, transaction.pair)

    def ask_to_end(self, transaction: Transaction, *, commit: bool) -> None:
        """Before the first request; one of a producer that was replaced must fail."""
        transaction.asked_to_end = True
        transaction.was_replaced = self.is_replaced(transaction)
        transaction.asked_to_commit = commit and not transaction.was_replaced

    def ended(self, transaction: Transaction, *, commit: bool) -> None:
        """EndTxn was answered without an error."""
        if transaction.was_replaced:
            self._judge.violated("I-8", f"{transaction} was ended by its producer, which had been replaced")
        transaction.is_committed = commit
        self._judge.counts["transactions committed" if commit else "transactions aborted"] += 1

    # What readers see.

    def see(self, reader: str, partition: Partition, offset: int, value: str, *, at_the_end: bool) -> None:
        transaction = self._of_value.get(value)
        where = f"{value} at {offset} of {partition}, which {reader} reads,"
        if transaction is None or value not in transaction.values.get(partition, ()):
            self._judge.violated("I-21", f"{where} was not written there")
            return
        if not transaction.is_committed and offset in self.undecided_in(partition):
            self._judge.counts["records without their marker read"] += 1
            return
        if not transaction.may_be_seen:
            self._judge.violated("I-21", f"{where} is of {transaction}, which was not committed")
        if self._offsets.setdefault((partition, value), offset) != offset:
            self._judge.violated("I-22", f"{where} is also at {self._offsets[partition, value]}")
        transaction.seen.add(value)
        if at_the_end:
            transaction.kept.add(value)

    def passed(self, reader: str, partition: Partition, offsets: range, values: Set[str]) -> None:
        """An answer had these values, and its reader goes on behind the offsets: all that was committed there."""
        if self._loses_records:
            return
        for (place, value), offset in self._offsets.items():
            if place != partition or offset not in offsets or value in values:
                continue
            transaction = self._of_value[value]
            if (transaction.is_committed or transaction.seen) and offset not in self.undecided_in(partition):
                self._judge.violated("I-22", f"{reader} passes {value} at {offset} of {partition}, of {transaction}")

    def see_offset(self, group_id: str, number: int) -> None:
        """A committed offset, which is a transaction's number."""
        if not 0 < number <= len(self.transactions):
            self._judge.violated("I-24", f"{group_id} has the offset {number}, which no transaction committed")
        elif not (transaction := self.transactions[number - 1]).may_be_seen or not transaction.commits_offset:
            self._judge.violated("I-24", f"{group_id} has the offset of {transaction}, which was not committed")

    def pending_offsets(self, transactional_id: str) -> list[Transaction]:
        """Transactions whose producer has not asked for their end, with an offset that the group's coordinator has."""
        return [
            transaction
            for transaction in self.transactions
            if transaction.transactional_id == transactional_id
            and transaction.has_pending_offset
            and not transaction.asked_to_end
        ]

    # At the end.

    def judge_all(self, start_offsets: dict[Partition, int], *, is_compacted: bool) -> None:
        """When readers have seen everything that is left; `start_offsets` are the highest that were ever seen."""
        latest = self._latest_of_keys() if is_compacted else {}
        for transaction in self.transactions:
            if not transaction.is_committed and not transaction.seen:
                continue
            missing = [
                value
                for partition, values in transaction.values.items()
                for value in values
                if value not in transaction.kept
                and not self._is_gone(partition, value, start_offsets.get(partition, 0), latest)
            ]
            if missing:
                self._judge.violated("I-22", f"{transaction} was committed, without {missing[:3]}")

    def _latest_of_keys(self) -> dict[tuple[Partition, bytes], int]:
        """The last offset that a committed transaction has written each key at."""
        latest: dict[tuple[Partition, bytes], int] = {}
        for (partition, value), offset in self._offsets.items():
            transaction, key = self._of_value[value], (partition, self._keys[value])
            if transaction.is_committed or transaction.seen:
                latest[key] = max(offset, latest.get(key, -1))
        return latest

    def _is_gone(
        self, partition: Partition, value: str, start_offset: int, latest: dict[tuple[Partition, bytes], int]
    ) -> bool:
        """Whether it was deleted or outdated, as it may be."""
        offset = self._offsets.get((partition, value))
        if offset is None:
            return start_offset > 0 or bool(latest)
        return offset < start_offset or offset < latest.get((partition, self._keys[value]), -1)

    def last_offsets(self, transactional_id: str) -> set[int]:
        """What its committed transactions may have left, NEVER if nothing."""
        line = self.lines[transactional_id]
        last: set[int] = {NEVER}
        of_id = [
            each for each in self.transactions if each.transactional_id == transactional_id and each.commits_offset
        ]
        for transaction in sorted(of_id, key=lambda each: (line.place(each.pair), each.number)):
            if transaction.is_committed or transaction.seen:
                last = {transaction.number}
            elif transaction.may_be_seen and self._loses_records:
                # In doubt, and what would show it may be gone.
                last.add(transaction.number)
        return last

    def wrong_copy(self, transactional_id: str, offset: int) -> str | None:
        """Whether some input is not in what was committed, or twice, or not below the committed offset (-1: none)."""
        copies = [each for each in self.transactions if each.transactional_id == transactional_id and each.inputs]
        in_doubt = [each for each in copies if each.may_be_seen and not each.is_committed and not each.seen]
        if in_doubt and self._loses_records:
            # What would show it may be gone.
            return None
        copied = 0
        for transaction in sorted(copies, key=lambda each: each.inputs.start):
            if not (transaction.is_committed or transaction.seen):
                continue
            if transaction.inputs.start != copied:
                return f"{transaction} has copied {transaction.inputs}, those before it {copied}"
            copied = transaction.inputs.stop
        return None if max(offset, 0) == copied else f"{copied} inputs were copied, {offset} is read"
