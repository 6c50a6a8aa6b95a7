"""`max.message.bytes` of a transaction's topics is lowered while it is open: it ends all the same (§13.9)."""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.cluster.image import TRANSACTION_STATE
from ottla.coordinator.transactions.entry import TransactionState
from ottla.coordinator.transactions.events import AbortTimedOutTransactions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.clusters import ask, until
from tests.broker.test_transaction_handlers import began, stable
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.wire import client_of, create_topic, running_broker

FEW = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
NONE = ErrorCode.NONE
TOPIC = 2


async def bound(broker: Broker, topic: str, size: int) -> None:
    configs = [AlterableConfig(name="max.message.bytes", value=str(size))]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)
    (response,) = (await ask(broker, IncrementalAlterConfigsRequest(resources=[resource]))).responses
    assert response.error_code == 0
    await until(lambda: broker.replicas.partition(topic, 0).log.config.max_message_bytes == size)


async def state(producer: TransactionalProducer) -> str:
    return str((await producer.described()).transaction_state)


async def test_lowered_bounds_keep_no_transaction_open(tmp_path: Path) -> None:
    """The decision, the marker and the completion are larger than their topics allow."""
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        await bound(broker, TRANSACTION_STATE, 0)
        await bound(broker, "t", 0)

        assert set(await producer.add("t", [1])) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert await producer.end(commit=True) is NONE
        await until(lambda: stable(broker))

        assert await state(producer) == "CompleteCommit"


async def test_transaction_beyond_the_bound_is_aborted_by_time(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "t", partitions=100)
        producer = TransactionalProducer({0: broker})
        assert await producer.initialize(transaction_timeout_ms=1) is NONE
        assert set(await producer.add("t", range(100))) == {NONE}
        await bound(broker, TRANSACTION_STATE, 300)

        (partition,) = broker.parts.transactions.topic
        partition.handle(AbortTimedOutTransactions())

        entry = partition.coordinator.shard.entries["tx"]
        await until(lambda: entry.metadata.state is TransactionState.COMPLETE_ABORT)
