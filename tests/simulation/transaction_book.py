"""What clients know of their transactions, and what that allows readers of committed records to see (I-21, I-22, I-24).

A record is known by its value, which is written in one transaction. A transaction whose commit was never asked for, or
only after its producer had been replaced, is never seen; one whose commit was answered is seen whole, each record once;
of one in doubt everything is seen, or nothing.
"""

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
    asked_to_commit: bool = False
    is_committed: bool | None = None
    """None: in doubt, or not decided."""
    seen: set[str] = field(default_factory=set)

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
    """The greatest that was handed out."""
    rivals: int = 1
    unanswered_until_us: int = NEVER
    """A request for a producer id and epoch that its client has given up may still be served until then."""


class TransactionBook:
    def __init__(self, judge: Judge, partitions: list[Partition]) -> None:
        self.partitions = partitions
        self.transactions: list[Transaction] = []
        self.lines: dict[str, Line] = {}
        self._judge = judge
        self._of_value: dict[str, Transaction] = {}
        self._offsets: dict[tuple[Partition, str], int] = {}

    # What producers do.

    def begin(self, transactional_id: str, pair: Pair) -> Transaction:
        number = len(self.transactions) + 1
        self.transactions.append(Transaction(transactional_id, pair, number, self._judge.trace.now_us()))
        return self.transactions[-1]

    def write(self, transaction: Transaction, partition: Partition, count: int) -> list[str]:
        written = transaction.values.setdefault(partition, [])
        first = len(transaction.written)
        values = [f"{transaction.number}/{first + number}" for number in range(count)]
        written += values
        self._of_value.update(dict.fromkeys(values, transaction))
        return values

    def handed_out(self, transactional_id: str, pair: Pair, known_before: Pair) -> None:
        """`known_before`: the latest when the request was sent."""
        line = self.lines[transactional_id]
        if pair <= known_before:
            self._judge.violated("I-8", f"{transactional_id} was given {pair} after {known_before}")
        line.latest = max(line.latest, pair)

    def is_replaced(self, transaction: Transaction) -> bool:
        return self.lines[transaction.transactional_id].latest > transaction.pair

    def ask_to_commit(self, transaction: Transaction) -> None:
        """Before the first request; one of a producer that was replaced must fail."""
        if not self.is_replaced(transaction):
            transaction.asked_to_commit = True

    def ended(self, transaction: Transaction, *, commit: bool) -> None:
        """EndTxn was answered without an error."""
        if commit and not transaction.asked_to_commit:
            self._judge.violated("I-8", f"{transaction} was committed after its producer had been replaced")
        transaction.is_committed = commit
        self._judge.counts["transactions committed" if commit else "transactions aborted"] += 1

    # What readers see.

    def see(self, reader: str, partition: Partition, offset: int, value: str) -> None:
        transaction = self._of_value.get(value)
        where = f"{value} at {offset} of {partition}, which {reader} reads,"
        if transaction is None or value not in transaction.values.get(partition, ()):
            self._judge.violated("I-21", f"{where} was not written there")
            return
        if not transaction.may_be_seen:
            self._judge.violated("I-21", f"{where} is of {transaction}, which was not committed")
        if self._offsets.setdefault((partition, value), offset) != offset:
            self._judge.violated("I-22", f"{where} is also at {self._offsets[partition, value]}")
        transaction.seen.add(value)

    def see_offset(self, group_id: str, number: int) -> None:
        """A committed offset, which is a transaction's number."""
        if not 0 < number <= len(self.transactions):
            self._judge.violated("I-24", f"{group_id} has the offset {number}, which no transaction committed")
        elif not (transaction := self.transactions[number - 1]).may_be_seen or not transaction.commits_offset:
            self._judge.violated("I-24", f"{group_id} has the offset of {transaction}, which was not committed")

    # At the end.

    def judge_all(self) -> None:
        """When readers have seen everything."""
        for transaction in self.transactions:
            missing = transaction.written - transaction.seen
            if missing and (transaction.is_committed or transaction.seen):
                self._judge.violated("I-22", f"{transaction} was committed, without {sorted(missing)[:3]}")

    def last_offset(self, transactional_id: str) -> int:
        """What its committed transactions have left, NEVER if nothing."""
        visible = [
            (transaction.pair, transaction.number)
            for transaction in self.transactions
            if transaction.transactional_id == transactional_id and transaction.commits_offset and transaction.seen
        ]
        return max(visible)[1] if visible else NEVER
