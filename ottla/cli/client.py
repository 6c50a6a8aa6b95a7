"""A small client for the administration of any Kafka-protocol broker or cluster.

It finds the broker that must answer (any, the controller, a partition's leader, a group's coordinator) and retries
while the error is a transient one, until the timeout.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ssl import SSLContext
from types import TracebackType
from typing import TypeVar

from ottla.cli.connection import BrokerConnection
from ottla.cli.failures import ClientError, NoAnswer, Refused, check
from ottla.protocol.address import Address
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schema import Message
from ottla.security.client import LoginCredentials

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
# The newest versions whose layout this client fills in: the next ones name topics by id alone.
METADATA_HIGHEST = 12
PRODUCE_HIGHEST = 12
OFFSET_APIS_HIGHEST = 9

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
EARLIEST = -2

TopicPartition = tuple[str, int]
Result = TypeVar("Result")
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The brokers to ask first, how long one request may take, who logs in, and what TLS is spoken with, if that is
    wanted."""

    bootstrap: Sequence[Address]
    timeout_s: float
    login: LoginCredentials | None = None
    tls: SSLContext | None = None

    @property
    def timeout_ms(self) -> int:
        return int(self.timeout_s * 1000)

    def client(self) -> "Client":
        return Client(self.bootstrap, self.timeout_s, self.login, self.tls)


class Client:
    """Use as an asynchronous context manager. Every method raises ClientError, whose message is for the user."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        timeout_s: float,
        login: LoginCredentials | None = None,
        tls: SSLContext | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._login = login
        self.tls = tls
        """What connections are made with; None: without TLS."""
        self._connections: dict[Address, BrokerConnection] = {}
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self._coordinators: dict[tuple[int, str], Address] = {}

    async def __aenter__(self) -> "Client":
        await self.ask_any(MetadataRequest(topics=[]), MetadataResponse, highest=METADATA_HIGHEST)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    @property
    def timeout_ms(self) -> int:
        """How long a broker may take for one request."""
        return int(self._timeout_s * 1000)

    @property
    def brokers(self) -> Mapping[int, Address]:
        """The brokers by node id, from the latest metadata."""
        return self._brokers

    async def retrying(self, attempt: Callable[[], Awaitable[Result]], *, also: Container[int] = ()) -> Result:
        """Run `attempt` until it succeeds, fails for good, or times out; coordinator and controller are looked up again
        each time. `also`: codes that pass here, where elsewhere they would be the answer."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except (NoAnswer, Refused) as error:
                if isinstance(error, Refused) and not error.is_retriable and error.code not in also:
                    raise
                if asyncio.get_running_loop().time() + pause_s >= deadline:
                    raise
            self._coordinators.clear()
            self._controller_id = -1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def metadata(self, topics: Iterable[str] | None, *, create_missing: bool = False) -> MetadataResponse:
        """The cluster and these topics, or all of them for None. The caller checks the topics' error codes."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create_missing)
        response = await self.ask_any(request, MetadataResponse, highest=METADATA_HIGHEST)
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self._controller_id = response.controller_id
        return response

    async def ask_any(self, request: Message, answer: type[Response], *, highest: int | None = None) -> Response:
        """Ask the first broker that can be reached; raises the last reason when none can."""
        last: ClientError | None = None
        for address in dict.fromkeys((*self._connections, *self._bootstrap, *self._brokers.values())):
            try:
                return await self.ask_at(address, request, answer, highest=highest)
            except NoAnswer as error:
                last = error
        assert last is not None, "a client has at least one bootstrap address"
        raise last

    async def ask_controller(self, request: Message, answer: type[Response]) -> Response:
        """Ask the broker that changes topics and configurations."""
        if self._controller_id not in self._brokers:
            await self.metadata([])
        address = self._brokers.get(self._controller_id)
        if address is None:
            return await self.ask_any(request, answer)
        return await self.ask_at(address, request, answer)

    async def ask_coordinator(
        self, group_id: str, request: Message, answer: type[Response], *, highest: int | None = None
    ) -> Response:
        return await self.ask_at(await self.coordinator_of(group_id), request, answer, highest=highest)

    async def ask_at(
        self, address: Address, request: Message, answer: type[Response], *, highest: int | None = None
    ) -> Response:
        connection = await self._connection_to(address)
        try:
            return await connection.ask(request, answer, self._timeout_s, highest=highest)
        except NoAnswer:
            del self._connections[address]
            await connection.close()
            raise

    async def version_at_controller(self, message: type[Message]) -> int | None:
        """The version in which the controller would be asked this, None if it does not know the request."""
        if self._controller_id not in self._brokers:
            await self.metadata([])
        address = self._brokers.get(self._controller_id, next(iter(self._connections)))
        return (await self._connection_to(address)).version_for(message)

    async def versions_at(self, address: Address) -> Mapping[int, tuple[int, int]]:
        """The lowest and the highest version of each request that a broker knows, by API key."""
        return (await self._connection_to(address)).ranges

    async def coordinator_of(self, group_id: str) -> Address:
        """The broker that keeps the group."""
        return await self._coordinator(GROUP_KEY_TYPE, group_id, f"group {group_id}")

    async def transaction_coordinator_of(self, transactional_id: str) -> Address:
        """The broker that keeps the transactional id."""
        return await self._coordinator(TRANSACTION_KEY_TYPE, transactional_id, f"transactional id {transactional_id}")

    async def _coordinator(self, key_type: int, key: str, name: str) -> Address:
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response = await self.ask_any(request, FindCoordinatorResponse)
        # Version 4 asks for many keys at once and answers with a list.
        found = response.coordinators[0] if response.coordinators else response
        check(f"cannot find the coordinator of {name}", found.error_code, found.error_message)
        address = Address(found.host, found.port)
        self._brokers = {**self._brokers, found.node_id: address}
        self._coordinators[key_type, key] = address
        return address

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        """For each partition its `LATEST` or `EARLIEST` offset, or the first at or after a timestamp (-1 if none).

        With `committed_only`, those before open transactions: the latest is then the last stable offset."""
        wanted = sorted(set(partitions))

        async def attempt() -> dict[TopicPartition, int]:
            offsets: dict[TopicPartition, int] = {}
            for leader, led in (await self.by_leader(wanted)).items():
                request = ListOffsetsRequest(replica_id=-1, topics=_topics_to_list(led, timestamp))
                request.timeout_ms = self.timeout_ms
                request.isolation_level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
                response = await self.ask_at(leader, request, ListOffsetsResponse)
                for topic in response.topics:
                    for found in topic.partitions:
                        name = f"cannot read the offsets of {topic.name}-{found.partition_index}"
                        check(name, found.error_code)
                        offsets[topic.name, found.partition_index] = found.offset
            return offsets

        return await self.retrying(attempt) if wanted else {}

    async def by_leader(self, partitions: Sequence[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        """The partitions by the address of their leader; raises Refused where one has none at the moment."""
        response = await self.metadata(sorted({topic for topic, _ in partitions}))
        leaders: dict[TopicPartition, int] = {}
        for topic in response.topics:
            check(f"topic {topic.name}", topic.error_code)
            leaders.update({(str(topic.name), row.partition_index): row.leader_id for row in topic.partitions})
        led: dict[Address, list[TopicPartition]] = {}
        for partition in partitions:
            if partition not in leaders:
                raise ClientError(f"topic {partition[0]} has no partition {partition[1]}")
            address = self._brokers.get(leaders[partition])
            if address is None:
                raise Refused(f"partition {partition[0]}-{partition[1]}", code=5)
            led.setdefault(address, []).append(partition)
        return led

    async def _connection_to(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            try:
                connection = await BrokerConnection.open(address, self._timeout_s, self._login, self.tls)
            except NoAnswer as error:
                raise self._explained(address, error) from error
            self._connections[address] = connection
        return connection

    def _explained(self, address: Address, error: NoAnswer) -> NoAnswer:
        """Add where the address comes from unless the user named it: a broker in a container often advertises an
        address that its clients cannot reach."""
        node_id = next((node_id for node_id, known in self._brokers.items() if known == address), None)
        if node_id is None or address in self._bootstrap:
            return error
        return NoAnswer(f"{error}; broker {node_id} advertises this address to its clients")


def _topics_to_list(partitions: Iterable[TopicPartition], timestamp: int) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    return list(topics.values())
