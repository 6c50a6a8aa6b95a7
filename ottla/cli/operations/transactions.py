"""What the coordinators of transactions know, as functions of a client: transactional ids and their transactions."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from ottla.cli.client import Client, TopicPartition
from ottla.cli.failures import ClientError, check
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

# Version 1 can ask for a duration. Patterns of version 2 have the syntax of another library than ours, and not every
# broker serves it: they are matched here.
DURATION_SINCE_VERSION = 1
ANY_DURATION = -1
# A broker counts these as open since their last transaction began, or for ever.
STATES_WITHOUT_TRANSACTION = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """What passes all of those that are given."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    open_longer_than_ms: int | None = None
    pattern: re.Pattern[str] | None = None
    """Of the whole transactional id."""

    def passes(self, transactional_id: str, state: str) -> bool:
        """What a broker cannot decide, or not every broker."""
        if self.open_longer_than_ms is not None and state in STATES_WITHOUT_TRANSACTION:
            return False
        return self.pattern is None or self.pattern.fullmatch(transactional_id) is not None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    coordinator: str
    transaction_timeout_ms: int
    # Of the last one, if none is open; None before the first.
    transaction_start_ms: int | None
    # Of a transaction that is ending, only those that still lack its marker.
    partitions: tuple[TopicPartition, ...]


async def list_transactions(client: Client, wanted: TransactionFilter | None = None) -> list[TransactionListing]:
    """Every broker knows the transactional ids that it coordinates, so every broker is asked."""
    wanted = wanted or TransactionFilter()
    await client.metadata([])
    listed: list[TransactionListing] = []
    for node_id in sorted(client.brokers):
        listed += await client.retrying(partial(_coordinated_by, client, node_id, wanted))
    return sorted(listed, key=lambda each: each.transactional_id)


async def _coordinated_by(client: Client, node_id: int, wanted: TransactionFilter) -> list[TransactionListing]:
    request = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=ANY_DURATION if wanted.open_longer_than_ms is None else wanted.open_longer_than_ms,
    )
    if wanted.open_longer_than_ms is not None:
        versions = await client.versions_at(client.brokers[node_id])
        if versions.get(ListTransactionsRequest.API_KEY, (0, 0))[1] < DURATION_SINCE_VERSION:
            raise ClientError(f"broker {node_id} cannot say how long transactions have been open")
    response = await client.ask_at(
        client.brokers[node_id], request, ListTransactionsResponse, highest=DURATION_SINCE_VERSION
    )
    check(f"cannot list the transactions of broker {node_id}", response.error_code)
    if response.unknown_state_filters:
        raise ClientError(f"broker {node_id} knows no state {', '.join(response.unknown_state_filters)}")
    return [
        TransactionListing(row.transactional_id, row.transaction_state, row.producer_id, node_id)
        for row in response.transaction_states
        if wanted.passes(row.transactional_id, row.transaction_state)
    ]


async def describe_transaction(client: Client, transactional_id: str) -> TransactionDescription:
    """Raises Refused when the coordinator does not know the transactional id."""

    async def attempt() -> TransactionDescription:
        coordinator = await client.transaction_coordinator_of(transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = await client.ask_at(coordinator, request, DescribeTransactionsResponse)
        row = response.transaction_states[0]
        check(f"transactional id {transactional_id}", row.error_code)
        return TransactionDescription(
            transactional_id=transactional_id,
            state=row.transaction_state,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            coordinator=str(coordinator),
            transaction_timeout_ms=row.transaction_timeout_ms,
            transaction_start_ms=row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
            partitions=tuple(sorted((topic.topic, index) for topic in row.topics for index in topic.partitions)),
        )

    return await client.retrying(attempt)


async def transactional_ids_of(client: Client, producer_ids: Collection[int]) -> dict[int, str]:
    """The transactional ids that coordinators know, by producer id."""
    listed = await list_transactions(client, TransactionFilter(producer_ids=tuple(sorted(producer_ids))))
    return {each.producer_id: each.transactional_id for each in listed}
