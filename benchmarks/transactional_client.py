"""A producer with a transactional id that speaks bytes, one request after the other."""

from benchmarks.raw_client import RawClient, find_coordinator
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.records.record import Record, build_batch

TIMEOUT_MS = 900_000
TRANSACTION = 1
"""The key type of FindCoordinator."""
AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
PRODUCE_BEFORE_KIP_890, PRODUCE_OF_KIP_890 = 11, 12
END_TXN_BEFORE_KIP_890, END_TXN_OF_KIP_890 = 4, 5


class TransactionalClient:
    """With a producer id; it writes to partition 0 of one topic. `kip_890`: as clients of `transaction.version` 2 do,
    which add no partitions, and get the next epoch with the answer to EndTxn."""

    def __init__(self, client: RawClient, transactional_id: str, topic: str, *, kip_890: bool = False) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._topic = topic
        self._kip_890 = kip_890
        find_coordinator(client, transactional_id, TRANSACTION)
        initialized = initialize(client, transactional_id)
        self._producer = initialized.producer_id, initialized.producer_epoch
        self._next_sequence = 0

    def begin(self, record_bytes: int) -> None:
        """A transaction with one record in it."""
        if not self._kip_890:
            self._add_partition()
        self._produce(record_bytes)

    def commit(self) -> None:
        version = END_TXN_OF_KIP_890 if self._kip_890 else END_TXN_BEFORE_KIP_890
        producer_id, producer_epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=True,
        )
        response = self._client.call(request, EndTxnResponse, version)
        assert isinstance(response, EndTxnResponse)
        assert not response.error_code, ErrorCode(response.error_code).name
        if self._kip_890:
            self._producer = response.producer_id, response.producer_epoch
            self._next_sequence = 0

    def _add_partition(self) -> None:
        producer_id, producer_epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        response = self._client.call(request, AddPartitionsToTxnResponse, 3)
        assert isinstance(response, AddPartitionsToTxnResponse)
        code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        assert not code, ErrorCode(code).name

    def _produce(self, record_bytes: int) -> None:
        producer_id, producer_epoch = self._producer
        records = build_batch(
            [Record(0, 1_700_000_000_000, None, bytes(record_bytes), ())],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._next_sequence,
            transactional=True,
        )
        self._next_sequence += 1
        partition = PartitionProduceData(index=0, records=memoryview(records))
        data = TopicProduceData(name=self._topic, partition_data=[partition])
        request = ProduceRequest(transactional_id=self._transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data])
        version = PRODUCE_OF_KIP_890 if self._kip_890 else PRODUCE_BEFORE_KIP_890
        response = self._client.call(request, ProduceResponse, version)
        assert isinstance(response, ProduceResponse)
        code = response.responses[0].partition_responses[0].error_code
        assert not code, ErrorCode(code).name


def initialize(client: RawClient, transactional_id: str) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    while True:
        response = client.call(request, InitProducerIdResponse, 4)
        assert isinstance(response, InitProducerIdResponse)
        if not response.error_code:
            return response
        assert response.error_code in AGAIN, ErrorCode(response.error_code).name
