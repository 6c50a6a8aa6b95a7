"""DescribeTransactions: the state of transactional ids whose coordinator this broker is (KIP-664)."""

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.server.request_context import RequestContext, check_repetitions
from ottla.coordinator.transactions.events import DescribeTransaction, DescriptionResult
from ottla.coordinator.transactions.records import by_topic
from ottla.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)


def handle(
    transactions: TransactionCoordinator, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | None:
    names = request.transactional_ids
    check_repetitions("transactional id", names, len(names))
    return transactions.ask_each(
        context,
        [DescribeTransaction(transactions.new_token(), name) for name in names],
        lambda results: DescribeTransactionsResponse(
            transaction_states=[_described(name, result) for name, result in zip(names, results, strict=True)]
        ),
    )


def _described(transactional_id: str, result: DescriptionResult) -> DescribedTransaction:
    described = DescribedTransaction(error_code=int(result.error), transactional_id=transactional_id)
    if result.metadata is not None:
        described.transaction_state = result.metadata.state.kafka_name
        described.transaction_timeout_ms = result.metadata.timeout_ms
        described.transaction_start_time_ms = result.metadata.start_ms
        described.producer_id = result.metadata.producer_id
        described.producer_epoch = result.metadata.producer_epoch
        topics = by_topic(result.partitions)
        described.topics = [TransactionTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return described
