"""One transactional producer that speaks bytes: its id and epoch, and each of its requests."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.clusters import ask

TRANSACTION = 1
AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class TransactionalProducer:
    """Asks again as clients do. `brokers` are those of the cluster, by their ids."""

    def __init__(
        self, brokers: dict[int, Any], transactional_id: str = "tx", *, ask: Callable[..., Awaitable[Any]] = ask
    ) -> None:
        self.brokers = brokers
        self._send = ask
        self.transactional_id = transactional_id
        self.producer_id = self.producer_epoch = -1

    async def initialize(self, version: int = 5, **settings: Any) -> ErrorCode:
        request = InitProducerIdRequest(
            **{"transactional_id": self.transactional_id, "transaction_timeout_ms": 60_000} | settings
        )
        response = await self._ask(request, version)
        if not response.error_code:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    async def add(self, topic: str, indexes: Sequence[int], version: int = 3) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        response = await self._ask(request, version)
        (result,) = response.results_by_topic_v3_and_below
        return [ErrorCode(each.partition_error_code) for each in result.results_by_partition]

    async def add_offsets(self, group_id: str, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        return ErrorCode((await self._ask(request, version)).error_code)

    async def end(self, *, commit: bool, version: int = 4) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        response = await self._ask(request, version)
        if response.producer_id >= 0:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    async def described(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (state,) = (await self._ask(request, 0)).transaction_states
        return state

    async def _ask(self, request: Any, version: int) -> Any:
        while True:
            node_id = await self.coordinator()
            if node_id in self.brokers:
                response = await self._send(self.brokers[node_id], request, version)
                if not AGAIN & set(_codes(response)):
                    return response
            await asyncio.sleep(0.01)

    async def coordinator(self) -> int | None:
        """Its node id; None while there is none."""
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id])
        response = await self._send(next(iter(self.brokers.values())), request, 6)
        (found,) = response.coordinators
        return None if found.error_code else found.node_id


def _codes(response: Any) -> list[int]:
    if hasattr(response, "results_by_topic_v3_and_below"):
        topics = response.results_by_topic_v3_and_below
        return [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    if hasattr(response, "transaction_states"):
        return [state.error_code for state in response.transaction_states]
    return [response.error_code]
