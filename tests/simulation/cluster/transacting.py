"""Transactional producers, as client libraries are: they find a coordinator, begin, write and end (I-8, I-21 to 24).

Half of them add partitions themselves; the others leave that to the leaders and get another epoch with each transaction
(KIP-890). Some share their transactional id with a rival, and replace each other.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.records.record import Record, build_batch
from tests.simulation.cluster.client import PASSING, REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.cluster.plan import ID_EXPIRATION_MS, NODE_IDS, ClusterPlan
from tests.simulation.cluster.producing import ACKS_ALL, produce_request
from tests.simulation.transaction_book import LATEST_ARRIVAL_MS, NO_PAIR, Line, Pair, Transaction
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

TOPIC = "payments"
PARTITIONS: list[Partition] = [(TOPIC, 0), (TOPIC, 1)]
GROUP, TRANSACTION = 0, 1
NONE = ErrorCode.NONE
# To be tried again, perhaps at another broker.
AGAIN = PASSING | {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
}
# The transaction is lost: it took too long, or another producer has the id.
OVER = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
}
REGISTERING_PRODUCE, REGISTERING_COMMIT, RAISING_END = 12, 5, 5
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


KEYS = [b"key-%d" % number for number in range(4)]
KEPT = {"retention.bytes": "-1"}
DELETED = {"retention.bytes": "1500", "segment.bytes": "600"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "700", "delete.retention.ms": "3000"}


def transactions_topic(plan: ClusterPlan) -> CreatableTopic:
    """What is left of it in the end, the book of transactions says."""
    wanted = COMPACTED if plan.compacts else DELETED if plan.deletes_transactions else KEPT
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in wanted.items()]
    return CreatableTopic(name=TOPIC, num_partitions=len(PARTITIONS), replication_factor=len(NODE_IDS), configs=configs)


def group_of(transactional_id: str) -> str:
    """The group whose offsets its transactions commit."""
    return f"{transactional_id}-inputs"


class TransactionIsOverError(Exception):
    """A request of it was refused for good."""


class Coordinators:
    """Connections to coordinators of groups and of transactions, looked for when they are needed."""

    def __init__(self, world: "ClusterWorld", rng: random.Random, client: Client) -> None:
        self._world, self._client = world, client
        self._version = rng.randint(1, 6)
        self._found: dict[tuple[int, str], Wire] = {}

    async def wire(self, kind: int, key: str) -> Wire:
        """Raises OSError where there is none."""
        wire = self._found.get((kind, key))
        if wire is None or wire.is_lost:
            asked = await self._client.any_broker()
            request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
            response = await asked.call(request, self._version, within_ms=REQUEST_TIMEOUT_MS)
            found = response.coordinators[0] if self._version >= 4 else response
            error = ErrorCode(found.error_code)
            if error is not NONE:
                self._world.judge_error(error, f"coordinator of {key}")
                raise ConnectionError(error.name)
            address = found.host, found.port
            wire = self._found[kind, key] = await self._world.connect_to(address, self._client.client_id)
        return wire

    def forget(self, kind: int, key: str) -> None:
        wire = self._found.pop((kind, key), None)
        if wire is not None:
            wire.close()

    def close(self) -> None:
        for wire in self._found.values():
            wire.close()


class Transactor:
    def __init__(self, world: "ClusterWorld", rng: random.Random, name: str, transactional_id: str) -> None:
        self.name, self.transactional_id = name, transactional_id
        self.is_done = False
        self._world, self._rng, self._book = world, rng, world.book
        self._line: Line = self._book.lines.setdefault(transactional_id, Line())
        self._client = Client(world, rng, name, [TOPIC])
        self._coordinators = Coordinators(world, rng, self._client)
        self._registers_implicitly = rng.random() < 0.5
        self._timeout_ms = rng.choice([3_000, 8_000])
        self._lingers = world.make_rng(f"{name} lingers")
        self._pair = NO_PAIR
        self._sequences: dict[Partition, int] = {}
        self._transaction: Transaction | None = None
        self._added: set[Any] = set()
        # Requests whose answers were lost since the epoch was new: they may still arrive, and mean another transaction.
        self._lost = 0

    async def live(self) -> None:
        """Until writing is over. The last transaction may be left open, unless a clock has jumped: then its timeout may
        be far away, and another producer has to fence it."""
        while not self._world.writing_is_over:
            try:
                if self._pair == NO_PAIR:
                    await self._initialize()
                elif self._world.plan.expires_transactional_ids and self._rng.random() < 0.1:
                    await self._sleep(ID_EXPIRATION_MS, 2 * ID_EXPIRATION_MS)
                await self._transact()
            except TransactionIsOverError:
                self._pair = NO_PAIR
                await self._sleep(50, 4_000 if self._line.rivals > 1 else 500)
            await self._sleep(5, 1_000)
        if "clock" in self._world.plan.faults:
            self._pair = NO_PAIR
            await self._initialize()
        self.is_done = True
        self._coordinators.close()
        self._client.close()

    # A producer id and epoch.

    async def _initialize(self) -> None:
        """With the pair that there is, as a client that has aborted and goes on with another epoch (KIP-360)."""
        line, pair, began_us = self._line, self._pair, self._world.now_us
        has_pair = pair != NO_PAIR
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=pair[0],
            producer_epoch=pair[1],
        )
        version = self._rng.randint(3 if has_pair else 0, 5)
        while True:
            lost, known_before = self._lost, line.latest
            response = await self._ask_coordinator(TRANSACTION, self.transactional_id, request, version)
            if self._lost > lost:
                line.unanswered_until_us = self._world.now_us + LATEST_ARRIVAL_MS * 1000
            error = ErrorCode(response.error_code)
            self._world.trace.note(self.name, "initialized", error.name, response.producer_id, response.producer_epoch)
            if error is NONE:
                break
            if has_pair and error in FENCED and self._may_be_fenced(began_us):
                raise TransactionIsOverError
            self._world.judge.violated("answers", f"init producer id of {self.name} was answered {error.name}")
        self._begin_with((response.producer_id, response.producer_epoch), known_before)
        self._world.judge.counts["epochs raised by clients" if has_pair else "transactional ids initialized"] += 1

    def _may_be_fenced(self, began_us: int) -> bool:
        """By a rival, by its own request whose answer was lost, or because its id has expired."""
        plan, line = self._world.plan, self._line
        if line.rivals > 1 or self._lost or plan.expires_transactional_ids or "clock" in plan.faults:
            return True
        return began_us <= line.unanswered_until_us or self._world.now_us <= line.unanswered_until_us

    def _begin_with(self, pair: Pair, known_before: Pair) -> None:
        self._book.handed_out(self.transactional_id, pair, known_before)
        self._pair = pair
        self._sequences.clear()
        self._lost = 0

    # A transaction.

    async def _transact(self) -> None:
        rng = self._rng
        transaction = self._transaction = self._book.begin(self.transactional_id, self._pair)
        self._added.clear()
        for _ in range(rng.randint(1, 3)):
            await self._write(transaction, rng.choice(self._book.partitions))
            await self._sleep(0, 300)
        if rng.random() < 0.4:
            await self._commit_offset(transaction)
        fate = rng.random()
        if fate < 0.06:
            await self._sleep(self._timeout_ms, 2 * self._timeout_ms)
        if fate > 0.94:
            # As a process that dies; another one comes with the same id.
            self._world.judge.counts["transactions left open"] += 1
            raise TransactionIsOverError
        await self._end(transaction, commit=rng.random() < 0.7)

    async def _write(self, transaction: Transaction, partition: Partition) -> None:
        if not self._registers_implicitly and partition not in self._added:
            await self._add_partition(partition)
        keys = [self._rng.choice(KEYS) for _ in range(self._rng.randint(1, 3))]
        values = self._book.write(transaction, partition, keys)
        sequence = self._sequences.get(partition, 0)
        now_ms = self._world.wall_ms()
        records = build_batch(
            [Record(timestamp=now_ms, key=key, value=value.encode()) for key, value in zip(keys, values, strict=True)],
            producer_id=self._pair[0],
            producer_epoch=self._pair[1],
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(partition, bytes(records), ACKS_ALL)
        request.transactional_id = self.transactional_id
        version = REGISTERING_PRODUCE if self._registers_implicitly else self._rng.randint(9, 11)

        async def ask() -> Any:
            wire, _ = await self._client.leader(partition)
            return await wire.call(request, version, within_ms=REQUEST_TIMEOUT_MS)

        response = await self._until_answered(ask, self._client.metadata_is_stale, _code_of_produce)
        self._judge("produce", _code_of_produce(response), {ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
        self._book.written_at(partition, values, response.responses[0].partition_responses[0].base_offset)
        self._sequences[partition] = sequence + len(values)

    async def _add_partition(self, partition: Partition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._pair[0],
            v3_and_below_producer_epoch=self._pair[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])],
        )

        def code_of(response: Any) -> int:
            code: int = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        version = self._rng.randint(0, 3)
        response = await self._ask_coordinator(TRANSACTION, self.transactional_id, request, version, code_of)
        self._judge("add partitions", code_of(response))
        self._added.add(partition)

    def _offset_of(self, transaction: Transaction) -> int:
        """What it commits."""
        return transaction.number

    async def _commit_offset(self, transaction: Transaction) -> None:
        """For a partition that has a name only."""
        group_id = group_of(self.transactional_id)
        if not self._registers_implicitly:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._pair[0],
                producer_epoch=self._pair[1],
                group_id=group_id,
            )
            version = self._rng.randint(0, 4)
            response = await self._ask_coordinator(TRANSACTION, self.transactional_id, adding, version)
            self._judge("add offsets", response.error_code)
        topic, index = self._book.partitions[0]
        offset = self._offset_of(transaction)
        offsets = [TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self._pair[0],
            producer_epoch=self._pair[1],
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=offsets)],
        )

        def code_of(response: Any) -> int:
            code: int = response.topics[0].partitions[0].error_code
            return code

        version = REGISTERING_COMMIT if self._registers_implicitly else self._rng.randint(0, 4)
        transaction.commits_offset = True
        response = await self._ask_coordinator(GROUP, group_id, request, version, code_of)
        self._judge("txn offset commit", code_of(response))
        transaction.has_pending_offset = True
        if self._lingers.random() < 0.3:
            # So that others find it pending.
            await self._world.sleep_ms(self._lingers.randint(100, 1_500))

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._pair[0],
            producer_epoch=self._pair[1],
            committed=commit,
        )
        version = RAISING_END if self._registers_implicitly else self._rng.randint(0, 4)
        known_before, lost = self._line.latest, self._lost
        self._world.trace.note(self.name, "ends", transaction.number, commit)
        self._book.ask_to_end(transaction, commit=commit)
        attempts_before = self._attempts
        response = await self._ask_coordinator(TRANSACTION, self.transactional_id, request, version)
        error = ErrorCode(response.error_code)
        if error in OVER and self._attempts == attempts_before + 1:
            # The only attempt was refused.
            transaction.is_committed = False
        self._judge("end of transaction", error)
        self._book.ended(transaction, commit=commit)
        self._world.inspector.decisions.ended(transaction.pair, commit=commit)
        if self._registers_implicitly:
            self._begin_with((response.producer_id, response.producer_epoch), known_before)
        elif self._lost or lost:
            # A late EndTxn would end the next transaction, which has the same epoch (KIP-890).
            self._pair = NO_PAIR
        elif not commit and self._rng.random() < 0.3:
            await self._initialize()

    # Asking.

    _attempts = 0

    async def _ask_coordinator(
        self,
        kind: int,
        key: str,
        request: Any,
        version: int,
        code_of: Callable[[Any], int] = lambda response: response.error_code,
    ) -> Any:
        async def ask() -> Any:
            wire = await self._coordinators.wire(kind, key)
            return await wire.call(request, version, within_ms=REQUEST_TIMEOUT_MS)

        return await self._until_answered(ask, lambda: self._coordinators.forget(kind, key), code_of)

    async def _until_answered(
        self, ask: Callable[[], Any], look_again: Callable[[], None], code_of: Callable[[Any], int]
    ) -> Any:
        """Again until there is an answer that is not to be repeated."""
        waited_ms = 20
        while True:
            self._attempts += 1
            try:
                response = await ask()
            except OSError:
                self._lost += 1
                self._client.metadata_is_stale()
                look_again()
            else:
                error = ErrorCode(code_of(response))
                if error not in AGAIN:
                    return response
                if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    look_again()
            await self._sleep(waited_ms // 2, waited_ms)
            waited_ms = min(2 * waited_ms, 500)

    def _judge(self, what: str, code: int, passing: "set[ErrorCode] | frozenset[ErrorCode]" = frozenset()) -> None:
        error = ErrorCode(code)
        if error is NONE or error in passing:
            return
        self._world.trace.note(self.name, what, error.name)
        if error not in OVER or not self._may_be_over():
            self._world.judge.violated("answers", f"{what} of {self._transaction} was answered {error.name}")
        self._world.judge.counts["transactions over"] += 1
        raise TransactionIsOverError

    def _may_be_over(self) -> bool:
        """By its timeout, or because another request for a producer epoch was served."""
        world, transaction, line = self._world, self._transaction, self._line
        assert transaction is not None, "a request of a transaction"
        age_ms = (world.now_us - transaction.began_us) // 1000
        if age_ms >= self._timeout_ms or "clock" in world.plan.faults or world.plan.expires_transactional_ids:
            return True
        return line.rivals > 1 or world.now_us <= line.unanswered_until_us

    async def _sleep(self, at_least_ms: int, at_most_ms: int) -> None:
        await self._world.sleep_ms(self._rng.randint(at_least_ms, at_most_ms))


def _code_of_produce(response: Any) -> int:
    code: int = response.responses[0].partition_responses[0].error_code
    return code
