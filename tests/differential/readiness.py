"""Before answers are compared: which versions both serve, that coordinators serve, that metadata is applied.

Kafka's controller answers before the broker beside it has published the change. Changes are published one after the
other: when the second of two later ones is visible, everything before them is applied.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

from ottla.broker.handlers.find_coordinator import GROUP, TRANSACTION
from ottla.broker.server.apis import APIS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from tests.differential.comparing import BARRIER_TOPIC
from tests.differential.connection import Address, Connection
from tests.waiting import wait_for

Ranges = dict[int, tuple[int, int]]
"""Lowest and highest version, by API key."""

TOPIC = 2
VISIBLE_WITHIN_S = 10


class Barrier:
    """A topic whose config is altered, to see when."""

    def __init__(self, address: Address, topic: str = BARRIER_TOPIC) -> None:
        self._connection = Connection(address)
        self._topic = topic
        self._values = itertools.count(1_000_000)
        created = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        self._connection.ask(CreateTopicsRequest(topics=[created], timeout_ms=30_000), 7)
        self.wait()

    def wait(self) -> None:
        for _ in range(2):
            self._alter_and_see(str(next(self._values)))

    def close(self) -> None:
        self._connection.close()

    def _alter_and_see(self, value: str) -> None:
        config = AlterableConfig(name="retention.ms", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=self._topic, configs=[config])
        self._connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        complaint = "a config that was altered does not become visible"
        wait_for(lambda: self._visible() == value, VISIBLE_WITHIN_S, complaint, every_s=0.001)

    def _visible(self) -> str | None:
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=self._topic, configuration_keys=["retention.ms"]
        )
        answer = self._connection.ask(DescribeConfigsRequest(resources=[resource]), 4)
        configs = answer.results[0].configs if answer is not None else []
        return configs[0].value if configs else None


def until_coordinators_serve(addresses: Sequence[Address]) -> None:
    """Kafka creates the topics of its coordinators when they are first asked for, and then needs a moment."""
    groups = [f"any-{number}" for number in range(40)]
    for address in addresses:
        with Connection(address) as connection:
            wait_for(partial(_do_serve, connection, groups), VISIBLE_WITHIN_S, "the coordinators do not serve")


def _do_serve(connection: Connection, groups: Sequence[str]) -> bool:
    return not any(_codes(connection, groups))


def _codes(connection: Connection, groups: list[str]) -> Iterator[int]:
    """Of finding, asking and having producer ids from the coordinators of so many groups, and transactional ids of the
    same names, that all are among them."""
    for key_type in (GROUP, TRANSACTION):
        found = connection.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=groups), 4)
        yield from (each.error_code for each in found.coordinators)
    described = connection.ask(DescribeGroupsRequest(groups=groups), 5)
    yield from (each.error_code for each in described.groups)
    transactions = connection.ask(DescribeTransactionsRequest(transactional_ids=groups), 0).transaction_states
    yield from {each.error_code for each in transactions} - {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
    yield connection.ask(ListTransactionsRequest(), 0).error_code
    yield connection.ask(InitProducerIdRequest(transactional_id=None), 4).error_code


def shared_ranges(addresses: Sequence[Address]) -> Ranges:
    """The versions that both serve, of each API in the table."""
    advertised = []
    for address in addresses:
        with Connection(address) as connection:
            answer = connection.ask(ApiVersionsRequest(), 0)
            advertised.append({row.api_key: (row.min_version, row.max_version) for row in answer.api_keys})
    ranges = {}
    for key, api in APIS.items():
        if all(key in each for each in advertised):
            low = max(api.min_version, *(each[key][0] for each in advertised))
            high = min(each[key][1] for each in advertised)
            if low <= high:
                ranges[key] = (low, high)
    return ranges
