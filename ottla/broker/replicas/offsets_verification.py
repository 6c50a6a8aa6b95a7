"""Offsets on their way into a transaction: whether the group's partition belongs to it (§46.2).

The question is that of a transactional batch of Produce. The answer has the coordinator's own codes, which
TxnOffsetCommit maps in its own way. Where the producer's previous transaction is about to end, the client asks again.
"""

from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.transaction_verification import TopicPartition, TransactionVerification
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import NO_SEQUENCE
from ottla.storage.log import NOT_VERIFIED, VerificationGuard

Done = Callable[[ErrorCode, VerificationGuard | None], None]


class OffsetsVerification:
    """Of the partitions of `topic`, which holds the offsets of groups."""

    def __init__(
        self, runtime: Runtime, replicas: ReplicaManager, verification: TransactionVerification, topic: str
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._verification = verification
        self._topic = topic

    def ask(
        self, transactional_id: str, producer: tuple[int, int], partition_index: int, done: Done, *, register: bool
    ) -> None:
        """`done` is called once, perhaps before this returns, with what the offsets are to be appended with."""
        is_enabled = self._runtime.config.transaction_partition_verification_enable
        producer_id, producer_epoch = producer
        if not is_enabled and not register:
            done(_error_of(producer_id, producer_epoch), NOT_VERIFIED)
            return
        try:
            guard = self._replicas.partition(self._topic, partition_index).begin_verification(
                producer_id, producer_epoch, NO_SEQUENCE, self._runtime.broker_clock.wall_ms(), raises_epoch=register
            )
        except KafkaError as error:
            done(error.code, None)
            return
        if guard is None:
            # The transaction is open here.
            done(ErrorCode.NONE, None)
            return
        partition = self._topic, partition_index
        answered = partial(_answered, partition, guard if is_enabled else NOT_VERIFIED, done)
        self._verification.verifier.ask(
            transactional_id, producer_id, producer_epoch, [partition], answered, registers=register
        )


def _error_of(producer_id: int, producer_epoch: int) -> ErrorCode:
    """What is wrong with a producer without asking its coordinator: no marker would end what this one has pending."""
    if producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.INVALID_PRODUCER_EPOCH if producer_epoch < 0 else ErrorCode.NONE


def _answered(
    partition: TopicPartition, guard: VerificationGuard, done: Done, codes: Mapping[TopicPartition, ErrorCode]
) -> None:
    done(codes[partition], guard)
