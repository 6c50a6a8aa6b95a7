"""The way of events from a broker that leads no partition of their topic: to one that does, as a producer.

That happens where brokers are more than partitions, and after a fail-over until leaders are balanced again. One batch
is under way at a time. While no leader can be reached it waits, and what comes after waits in the publisher's buffer.
What was sent and not confirmed is the publisher's to send again.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.broker.events.schema import EVENTS_TOPIC
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.broker.server.network import Network
from ottla.broker.server.peer_connection import KeptPeer, Peer, PeerError
from ottla.protocol.address import Address
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.replication.partition import ACKS_ALL
from ottla.security.client import LoginCredentials

RETRY_S: Final = 1.0
TIMEOUT_MS: Final = 30_000

Done = Callable[[KafkaError | None], None]
"""Called with the error if a batch may not have been written, with None if it was."""


class _Target(NamedTuple):
    partition: int
    address: Address


class Forwarding:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        network: Network,
        *,
        inter_broker_listener: str,
        login: LoginCredentials | None,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._inter_broker_listener = inter_broker_listener
        self._task: asyncio.Task[None] | None = None
        self._peer = KeptPeer(runtime, network, login, "events")

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def send(self, batch: bytearray, done: Done) -> None:
        """Not while it is busy. `done` is called later, as an event."""
        assert self._task is None, "one batch at a time"
        self._task = self._runtime.start_task(self._deliver(batch, done), "events forwarding")

    def stop(self) -> None:
        """`done` is not called any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._peer.close()

    async def _deliver(self, batch: bytearray, done: Done) -> None:
        target, peer = await self._reached()
        why = await self._ask(peer, target.partition, batch)
        self._task = None
        self._runtime.guard(done, why)
        self._runtime.end_event()

    async def _reached(self) -> tuple[_Target, Peer]:
        """A leader and an open connection to it."""
        while True:
            target = self._target()
            if target is not None:
                try:
                    return target, await self._peer.connected(target.address)
                except PeerError:
                    self._peer.close()
            await asyncio.sleep(RETRY_S)

    def _target(self) -> _Target | None:
        """A partition that is led; brokers begin their search at different ones."""
        image = self._metadata.image
        topic = image.topic(EVENTS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        for offset in range(count):
            index = (self._runtime.node_id + offset) % count
            state = image.partition(EVENTS_TOPIC, index)
            leader = None if state is None else image.brokers.get(state.leader)
            if leader is not None and leader.is_live:
                return _Target(index, Address(*leader.endpoint(self._inter_broker_listener)))
        return None

    async def _ask(self, peer: Peer, partition: int, batch: bytearray) -> KafkaError | None:
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        topic = TopicProduceData(name=EVENTS_TOPIC, partition_data=[data])
        try:
            response = await peer.ask(ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[topic]))
        except PeerError as error:
            self._peer.close()
            return error_for(ErrorCode.NETWORK_EXCEPTION, str(error))
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            return error_for(code, answer.error_message or code.name)
        return None
