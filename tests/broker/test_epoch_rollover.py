"""A producer's last epoch over the wire, by `transaction.version` 2: another producer id, and no record lost."""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.coordinator.transactions.events import AbortTimedOutTransactions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceResponse
from tests.broker.test_transaction_handlers import began, described_as
from tests.broker.test_transactional_produce import codes, in_transaction
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.wire import Client, client_of, fetch, running_broker, until, values_of

NONE = ErrorCode.NONE
LAST_EPOCH = 32766


async def exhausted(broker: Broker) -> TransactionalProducer:
    """A producer with the last epoch that a client can have."""
    producer = await began(broker)
    for hosted in broker.parts.transactions.topic:
        for entry in hosted.coordinator.shard.context.entries.values():
            entry.metadata = entry.metadata._replace(producer_epoch=LAST_EPOCH)
    producer.producer_epoch = LAST_EPOCH
    return producer


async def written(client: Client, producer: TransactionalProducer) -> list[ErrorCode]:
    request = in_transaction(0, producer=producer.producer_id, epoch=producer.producer_epoch)
    return codes(await client.call(request, ProduceResponse, 12))


async def records_committed(broker: Broker, client: Client, offset: int) -> list[bytes | None]:
    """From this offset on, when all is decided; the marker is left out."""
    partition = broker.replicas.partition("t", 0)
    await until(broker, lambda: partition.last_stable_offset == partition.log.log_end_offset)
    answer = await fetch(client, "t", offset, isolation_level=1)
    assert not answer.aborted_transactions
    return values_of(answer.records)[:1]


async def test_next_transaction_goes_on_with_another_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        producer = await exhausted(broker)
        before = producer.producer_id
        for _ in range(2):
            assert await written(client, producer) == [NONE]
            assert await producer.end(commit=True, version=5) is NONE
        assert producer.producer_id != before
        assert producer.producer_epoch == 1

        assert [await records_committed(broker, client, offset) for offset in (0, 2)] == [[b"0"], [b"0"]]


async def test_last_epoch_that_timed_out_goes_on_with_another_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        producer = await exhausted(broker)
        assert await written(client, producer) == [NONE]
        for hosted in broker.parts.transactions.topic:
            for entry in hosted.coordinator.shard.context.entries.values():
                entry.metadata = entry.metadata._replace(start_ms=0)
            hosted.handle(AbortTimedOutTransactions())
        await described_as(producer, "CompleteAbort")
        before = producer.producer_id

        assert await written(client, producer) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await producer.end(commit=False, version=5) is NONE
        assert (producer.producer_id != before, producer.producer_epoch) == (True, 0)
        assert await written(client, producer) == [NONE]
        assert await producer.end(commit=True, version=5) is NONE
        await described_as(producer, "CompleteCommit")
