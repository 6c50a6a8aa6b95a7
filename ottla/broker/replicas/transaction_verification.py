"""Transactional batches on their way to the log: no first batch of a transaction without its coordinator's word (§40).

Where nothing of the transaction is open in a partition, the coordinator is asked whether the partition belongs to it,
or to register the partition. Until it answers the producer has a guard there, which the append presents. A producer
that begins its next transaction while the markers of the one before are under way is asked about again for a moment,
so that it need not try itself.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import NamedTuple, Protocol

from ottla.broker.histogram import Histogram
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.storage.log import NOT_VERIFIED, VerificationGuard

TopicPartition = tuple[str, int]
Answered = Callable[[Mapping[TopicPartition, ErrorCode]], None]

VERIFY_SINCE = 11
REGISTER_SINCE = 12


class TransactionVerifier(Protocol):
    """The way to the coordinators of transactions."""

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        answered: Answered,
        *,
        registers: bool,
    ) -> None:
        """`answered` gets a code for each partition, once, perhaps before this returns."""
        ...


class TransactionOperation(Enum):
    """What a version of Produce asks for, and which errors its clients know (§40.1.3)."""

    VERIFY_WITH_OLD_ERRORS = auto()
    VERIFY = auto()
    REGISTER = auto()

    @classmethod
    def of_produce(cls, version: int) -> "TransactionOperation":
        if version >= REGISTER_SINCE:
            return cls.REGISTER
        return cls.VERIFY if version >= VERIFY_SINCE else cls.VERIFY_WITH_OLD_ERRORS


class TransactionalBatch(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    sequence: int


class Verified(NamedTuple):
    """What the batches of one request may be appended with, and why others may not be."""

    guards: dict[TopicPartition, VerificationGuard]
    errors: dict[TopicPartition, KafkaError]

    def guard_for(self, topic: str, index: int) -> VerificationGuard | None:
        """None where none is needed. Raises the KafkaError of the answer."""
        error = self.errors.get((topic, index))
        if error is not None:
            raise error
        return self.guards.get((topic, index))


class TransactionVerification:
    def __init__(
        self, runtime: Runtime, replicas: ReplicaManager, make_verifier: Callable[[], TransactionVerifier]
    ) -> None:
        """`make_verifier` is called for the first transaction."""
        self._runtime = runtime
        self._replicas = replicas
        self._make_verifier = make_verifier
        self._verifier: MeasuredVerifier | None = None
        self.times = Histogram()
        """From each question to its answer."""
        self.failures: Counter[str] = Counter()
        """Partitions that were answered with an error, by its name."""

    @property
    def verifier(self) -> TransactionVerifier:
        if self._verifier is None:
            self._verifier = MeasuredVerifier(self._runtime, self._make_verifier(), self.times, self.failures)
        return self._verifier

    def begin(
        self, transactional_id: str, batches: Sequence[TransactionalBatch], operation: TransactionOperation
    ) -> "PendingVerification":
        """`batches` are of one producer."""
        return PendingVerification(self._runtime, self._replicas, self.verifier, transactional_id, batches, operation)


class MeasuredVerifier:
    """A verifier whose answers are counted."""

    def __init__(
        self, runtime: Runtime, verifier: TransactionVerifier, times: Histogram, failures: Counter[str]
    ) -> None:
        self._runtime = runtime
        self._verifier = verifier
        self._times = times
        self._failures = failures
        self.unanswered = 0

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        answered: Answered,
        *,
        registers: bool,
    ) -> None:
        self.unanswered += 1
        count = partial(self._answered, self._runtime.clock.now_ns(), answered)
        self._verifier.ask(transactional_id, producer_id, producer_epoch, partitions, count, registers=registers)

    def _answered(self, began_ns: int, answered: Answered, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        self.unanswered -= 1
        self._times.observe(self._runtime.clock.now_ns() - began_ns)
        self._failures.update(code.name for code in codes.values() if code is not ErrorCode.NONE)
        answered(codes)


class PendingVerification:
    """Of one request: what needs no coordinator is `known` at once, and so is what one on this broker has at hand."""

    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        verifier: TransactionVerifier,
        transactional_id: str,
        batches: Sequence[TransactionalBatch],
        operation: TransactionOperation,
    ) -> None:
        config = runtime.config
        self._runtime = runtime
        self._replicas = replicas
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._batches = batches
        self._operation = operation
        self._is_enabled = config.transaction_partition_verification_enable
        retry_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)
        self._retry_until_ms = runtime.clock.now_ms() + retry_ms
        self.verified = Verified({}, {})
        self._unknown: list[TopicPartition] = []
        self._done: Callable[[Verified], None] | None = None
        self._look()
        if self._unknown:
            self._ask()

    @property
    def known(self) -> Verified | None:
        """None while an answer is missing."""
        return None if self._unknown else self.verified

    def when_known(self, done: Callable[[Verified], None]) -> None:
        """`done` is called once, now if it is known."""
        if self._unknown:
            self._done = done
        else:
            done(self.verified)

    def _ask(self) -> None:
        first = self._batches[0]
        self._verifier.ask(
            self._transactional_id,
            first.producer_id,
            first.producer_epoch,
            self._unknown,
            self._answered,
            registers=self._operation is TransactionOperation.REGISTER,
        )

    def _look(self) -> None:
        """At each partition: whether its coordinator must be asked."""
        guards, errors = self.verified = Verified({}, {})
        self._unknown = []
        for topic, index, producer_id, epoch, sequence in self._batches:
            if not self._is_enabled:
                guards[topic, index] = NOT_VERIFIED
                if self._operation is not TransactionOperation.REGISTER:
                    continue
            try:
                guard = self._replicas.partition(topic, index).begin_verification(
                    producer_id,
                    epoch,
                    sequence,
                    self._runtime.broker_clock.wall_ms(),
                    raises_epoch=self._operation is TransactionOperation.REGISTER,
                )
            except KafkaError as error:
                errors[topic, index] = error
                continue
            if guard is not None:
                self._unknown.append((topic, index))
                guards.setdefault((topic, index), guard)

    def _answered(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        retry_ms = self._runtime.config.add_partitions_to_txn_retry_backoff_ms
        if (
            self._operation is TransactionOperation.REGISTER
            and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            and self._runtime.clock.now_ms() + retry_ms <= self._retry_until_ms
        ):
            # Its transaction before is about to end: between two transactions of a producer that is the normal case.
            self._runtime.schedule(retry_ms, self._ask_again)
            return
        for partition, code in codes.items():
            if code is not ErrorCode.NONE:
                self.verified.errors[partition] = _error(code, self._operation)
        self._finish()

    def _ask_again(self) -> None:
        self._look()
        if self._unknown:
            self._ask()
        else:
            self._finish()

    def _finish(self) -> None:
        self._unknown = []
        if self._done is not None:
            self._done(self.verified)


_NOT_REACHED = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def _error(code: ErrorCode, operation: TransactionOperation) -> KafkaError:
    """What the producer gets (§40.5). NOT_ENOUGH_REPLICAS is what every client repeats without asking for metadata."""
    why = f"the transaction coordinator answered {code.name}"
    if code in _NOT_REACHED:
        code, why = ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction coordinator could not be asked: {code.name}"
    elif code is ErrorCode.CONCURRENT_TRANSACTIONS and operation is not TransactionOperation.REGISTER:
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionOperation.VERIFY_WITH_OLD_ERRORS:
        code = ErrorCode.INVALID_TXN_STATE
    return error_for(code, why)
