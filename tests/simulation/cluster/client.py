"""What every client of a cluster has: its picture of brokers and leaders, and a connection to each broker it needs."""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.wire import Waiting, Wire

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

Partition = tuple[str, int]

REQUEST_TIMEOUT_MS = 5_000
METADATA_BY_ID_SINCE = 12
FETCH_BY_ID_SINCE = PRODUCE_BY_ID_SINCE = 13
NO_TOPIC_ID = bytes(16)
# What a client answers by asking for metadata and trying again.
PASSING = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_CONTROLLER,
}


class ClusterWire(Wire):
    """While something is wrong with the cluster, an answer may never come: then the client hangs up."""

    world: "ClusterWorld"

    def _overdue(self, waiting: Waiting, allowed_ms: int) -> None:
        if self.world.has_been_calm_for_ms > allowed_ms:
            super()._overdue(waiting, allowed_ms)
        elif not self._lost:
            self.close()


class NoLeaderError(ConnectionError):
    """No broker leads the partition, as far as this client knows. To be tried again, like a lost connection."""


@dataclass
class Leader:
    node_id: int
    epoch: int


class Client:
    """All methods but `ask` raise ConnectionError, also where no broker can be reached; the caller waits and tries
    again."""

    def __init__(
        self,
        world: "ClusterWorld",
        rng: random.Random,
        client_id: str,
        topics: list[str] | None = None,
        *,
        knows_epochs: bool = True,
    ) -> None:
        self.client_id = client_id
        self._world = world
        self._rng = rng
        self._topics = world.topics if topics is None else topics
        self._version = rng.randint(7, 12) if knows_epochs else rng.randint(1, 6)
        self._asks_by_id = world.plan.uses_topic_ids and knows_epochs
        if self._asks_by_id:
            self._version = rng.randint(METADATA_BY_ID_SINCE, 13)
        self.topic_ids: dict[str, bytes] = {}
        self._wires: dict[int, ClusterWire] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        # Never goes back to an older epoch, whichever broker answers with it (KIP-320): from Metadata v7 on.
        self._leaders: dict[Partition, Leader] = {}
        self._is_stale = True

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def metadata_is_stale(self) -> None:
        """The next question for a leader asks the cluster first."""
        self._is_stale = True

    async def any_broker(self) -> ClusterWire:
        """A connection to some broker."""
        addresses = list(self._addresses.items()) or list(self._world.bootstrap.items())
        node_id, address = self._rng.choice(addresses)
        try:
            return await self._wire_to(node_id, address)
        except OSError:
            # It may have gone for ever; the next attempt begins with those that one is born with.
            self._addresses.clear()
            raise

    async def ask(self, request: Any, version: int) -> Any | None:
        """The answer of some broker; None if there was none, so that what was done is unknown."""
        try:
            wire = await self.any_broker()
            return await wire.call(request, version, within_ms=REQUEST_TIMEOUT_MS)
        except OSError:
            return None

    async def broker(self, node_id: int) -> ClusterWire:
        if node_id not in self._addresses:
            raise ConnectionError(f"no address of broker {node_id}")
        return await self._wire_to(node_id, self._addresses[node_id])

    async def leader(self, partition: Partition) -> tuple[ClusterWire, int]:
        """A connection to its leader, and the leader epoch."""
        if self._is_stale or partition not in self._leaders:
            await self._refresh()
        leader = self._leaders.get(partition)
        if leader is None or leader.node_id not in self._addresses:
            self._is_stale = True
            raise NoLeaderError(f"no leader for {partition}")
        try:
            return await self._wire_to(leader.node_id, self._addresses[leader.node_id]), leader.epoch
        except OSError:
            self._is_stale = True
            raise

    async def _wire_to(self, node_id: int, address: tuple[str, int]) -> ClusterWire:
        wire = self._wires.get(node_id)
        if wire is None or wire.is_lost:
            wire = self._wires[node_id] = await self._world.connect_to(address, self.client_id)
        return wire

    async def _refresh(self) -> None:
        wire = await self.any_broker()
        topics = self._named()
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await wire.call(request, self._version, within_ms=REQUEST_TIMEOUT_MS)
        if response.brokers:
            self._addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            self._learn_id(topic)
            for partition in topic.partitions:
                self._learn((topic.name, partition.partition_index), partition)
        self._is_stale = False

    def _named(self) -> list[MetadataRequestTopic]:
        """By their ids, in worlds that use them, once all are known: a request has ids or names."""
        if not self._asks_by_id or not all(topic in self.topic_ids for topic in self._topics):
            return [MetadataRequestTopic(name=topic) for topic in self._topics]
        return [MetadataRequestTopic(name=None, topic_id=self.topic_ids[topic]) for topic in self._topics]

    def _learn_id(self, topic: Any) -> None:
        """A topic that was made again under its name has other leaders, whose epochs begin again."""
        if ErrorCode(topic.error_code) is ErrorCode.UNKNOWN_TOPIC_ID:
            self._world.judge.counts["topics gone by their ids"] += 1
            for name in [name for name, topic_id in self.topic_ids.items() if topic_id == topic.topic_id]:
                self._forget(name)
        elif topic.topic_id != NO_TOPIC_ID and topic.name:
            if self.topic_ids.get(topic.name, topic.topic_id) != topic.topic_id:
                self._forget(topic.name)
            self.topic_ids[topic.name] = topic.topic_id

    def _forget(self, name: str) -> None:
        del self.topic_ids[name]
        for partition in [partition for partition in self._leaders if partition[0] == name]:
            del self._leaders[partition]

    def _learn(self, partition: Partition, found: Any) -> None:
        known = self._leaders.get(partition)
        if found.leader_id >= 0 and (known is None or found.leader_epoch >= known.epoch):
            self._leaders[partition] = Leader(found.leader_id, found.leader_epoch)
        elif found.leader_id < 0:
            self._is_stale = True
