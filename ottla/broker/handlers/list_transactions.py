"""ListTransactions: the transactional ids whose coordinator this broker is (KIP-664).

v1 asks for transactions that have been open for longer than a duration (KIP-994), v2 by a regular expression
(KIP-1152). The client writes it: RE2 matches in time that grows with the length of the id, as Kafka's RE2J does, and
not with what the expression could try.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.runtime import in_slices, now_or_later
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.transactions.describe import STATE_NAMES
from ottla.coordinator.transactions.events import ListedId, ListTransactionalIds
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

NO_TOKEN: Final = -1
"""The coordinator gives each of its partitions one."""
PATTERN_BYTES_MAX: Final = 1 << 20


def handle(
    transactions: TransactionCoordinator, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | None:
    pattern = request.transactional_id_pattern
    try:
        matches = _matcher(pattern) if pattern else None
    except ValueError:
        return ListTransactionsResponse(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION))
    unknown = [name for name in request.state_filters if name not in STATE_NAMES]
    wanted = ListTransactionalIds(
        NO_TOKEN,
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        request.duration_filter,
        matches,
    )
    return transactions.list_ids(context, wanted, lambda found: _response(found, unknown))


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether it fits a whole id. Raises ValueError."""
    # Imported here: few clients ask by a pattern. It carries no types.
    re2: Any = import_module("re2")
    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"no regular expression: {pattern!r}") from error
    finally:
        # Else the last 128 patterns are kept.
        re2.purge()
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


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
