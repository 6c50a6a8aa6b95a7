"""ListTransactions: the transactional ids whose coordinator this broker is (KIP-664).

v1 asks for transactions that have been open for longer than a duration (KIP-994). v2, which asks by a regular
expression, is not served: one that a client has written could keep the broker busy for ever.
"""

from typing import Any

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.runtime import in_slices, now_or_later
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.transactions.describe import STATE_NAMES
from ottla.coordinator.transactions.events import ListedId
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def handle(
    transactions: TransactionCoordinator, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | None:
    unknown = [name for name in request.state_filters if name not in STATE_NAMES]
    return transactions.list_ids(
        context,
        request.state_filters,
        request.producer_id_filters,
        request.duration_filter,
        lambda found: _response(found, unknown),
    )


def _response(found: list[ListedId] | ErrorCode, unknown: list[str]) -> Any:
    """Of thousands, a coroutine."""
    if isinstance(found, ErrorCode):
        return ListTransactionsResponse(error_code=int(found), unknown_state_filters=unknown)
    return now_or_later(_listing(found, unknown), len(found))


async def _listing(found: list[ListedId], unknown: list[str]) -> ListTransactionsResponse:
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=await in_slices(_listed, found))


def _listed(each: ListedId) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state_name
    )
