"""Where partitions begin and end, those without a replica here too, whose leaders are asked (docs/operators.md §5.5).

What is looked for and is not here is asked for soon after, and again at each interval as long as it goes on being
looked for. So what is known of it is an interval old at most, and nothing is asked where all replicas are here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import ITEMS_PER_SLICE, Runtime, TimeLimit, next_step
from ottla.broker.server.network import Network
from ottla.broker.server.peer_connection import KeptPeer, Peer, PeerError, address_of_peer
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replication.partition import READ_COMMITTED, READ_UNCOMMITTED
from ottla.security.client import LoginCredentials

PARTITIONS_MAX: Final = 5000
"""Of other brokers; beyond it, who came first stays."""
PARTITIONS_PER_REQUEST: Final = 500
"""Their answers are handled in one step: some milliseconds."""
WANTED_FOR_MS: Final = 120_000
"""Scrapes may be a minute apart."""
GATHER_MS: Final = 100
"""What one scrape looks for is asked for together."""
ANSWER_MS: Final = 5000
CONSUMER: Final = -1
"""The replica id of who follows nothing: the end is the high watermark, or the last stable offset."""
LATEST, EARLIEST = -1, -2

TopicPartition = tuple[str, int]


class PartitionEnds(NamedTuple):
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int | None = None
    """None where the leader was not asked for it."""


class ReadableOffsets(NamedTuple):
    log_start_offset: int
    end: int

    def lag(self, committed_offset: int) -> int:
        """Records that can be read and are not committed; none that was deleted."""
        return max(self.end - max(committed_offset, self.log_start_offset), 0)


class EndsOfPartitions:
    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        metadata: Metadata,
        network: Network,
        *,
        inter_broker_listener: str,
        login: LoginCredentials | None,
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._metadata = metadata
        self._network = network
        self._inter_broker_listener = inter_broker_listener
        self._login = login
        # Partitions without a replica here: when each was last looked for, and what its leader has answered.
        self._wanted_ms: dict[TopicPartition, int] = {}
        # The same of those whose last stable offset was looked for.
        self._stable_wanted_ms: dict[TopicPartition, int] = {}
        self._answered: dict[TopicPartition, PartitionEnds] = {}
        self._is_asking = False

    def find(self, topic: str, index: int, *, is_transactional: bool) -> ReadableOffsets | None:
        """For a group that commits in transactions, and so reads what is committed, or for another one; None where it
        is not known, or not yet."""
        replica = self._replicas.find(topic, index)
        if replica is not None:
            ours = PartitionEnds(replica.log.log_start_offset, replica.high_watermark, replica.last_stable_offset)
            return _readable(ours, is_transactional=is_transactional)
        self._want((topic, index), is_transactional=is_transactional)
        answered = self._answered.get((topic, index))
        return None if answered is None else _readable(answered, is_transactional=is_transactional)

    def _want(self, key: TopicPartition, *, is_transactional: bool) -> None:
        if key in self._wanted_ms or len(self._wanted_ms) < PARTITIONS_MAX:
            self._wanted_ms[key] = self._runtime.clock.now_ms()
            if is_transactional:
                self._stable_wanted_ms[key] = self._wanted_ms[key]
            if not self._is_asking and self._runtime.is_serving:
                self._is_asking = True
                self._runtime.spawn(self._ask_at_intervals(), "ends of other brokers' partitions")

    def of_other_brokers(self) -> Mapping[TopicPartition, PartitionEnds]:
        """Of the partitions that are looked for, those whose leaders have answered."""
        return self._answered

    async def _ask_at_intervals(self) -> None:
        """Until nothing has been looked for in a while."""
        peers: dict[int, KeptPeer] = {}
        try:
            await self._runtime.sleep(GATHER_MS)
            while self._wanted_ms:
                await self._ask_all(peers)
                await self._runtime.sleep(self._runtime.config.ottla_events_sample_interval_ms)
                self._forget()
        finally:
            self._is_asking = False
            for peer in peers.values():
                peer.close()

    def _forget(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        self._wanted_ms, self._stable_wanted_ms = (
            {key: at_ms for key, at_ms in wanted.items() if now_ms - at_ms < WANTED_FOR_MS}
            for wanted in (self._wanted_ms, self._stable_wanted_ms)
        )
        self._answered = {key: ends for key, ends in self._answered.items() if key in self._wanted_ms}

    async def _ask_all(self, peers: dict[int, KeptPeer]) -> None:
        by_leader = await self._by_leader()
        for node_id in peers.keys() - by_leader:
            peers.pop(node_id).close()
        for node_id, keys in by_leader.items():
            kept = peers.get(node_id) or KeptPeer(self._runtime, self._network, self._login, "ends")
            peers[node_id] = kept
            await self._ask(node_id, kept, keys)

    async def _by_leader(self) -> dict[int, list[TopicPartition]]:
        """Those that have a leader which is alive; what was known of others is dropped."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for number, key in enumerate(list(self._wanted_ms), 1):
            if number % ITEMS_PER_SLICE == 0:
                await next_step()
            image = self._metadata.image
            state = image.partition(*key)
            leader = None if state is None else image.brokers.get(state.leader)
            if leader is None or not leader.is_live or leader.node_id == self._runtime.node_id:
                self._answered.pop(key, None)
            else:
                by_leader.setdefault(leader.node_id, []).append(key)
        return by_leader

    async def _ask(self, node_id: int, kept: KeptPeer, keys: Sequence[TopicPartition]) -> None:
        """What is not answered is not known any more."""
        try:
            for first in range(0, len(keys), PARTITIONS_PER_REQUEST):
                asked = keys[first : first + PARTITIONS_PER_REQUEST]
                with TimeLimit(self._runtime, ANSWER_MS):
                    peer = await kept.connected(
                        address_of_peer(self._metadata.image, node_id, self._inter_broker_listener)
                    )
                    starts, ends = await _offsets(peer, asked, EARLIEST), await _offsets(peer, asked, LATEST)
                    stable = await self._stable_offsets(peer, asked)
                for key in asked:
                    if key in starts and key in ends:
                        self._answered[key] = PartitionEnds(starts[key], ends[key], stable.get(key))
                    else:
                        self._answered.pop(key, None)
        except (PeerError, TimeoutError) as error:
            kept.close()
            self._runtime.log.info("leader could not be asked for ends of partitions", leader=node_id, why=str(error))
            for key in keys:
                self._answered.pop(key, None)

    async def _stable_offsets(self, peer: Peer, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = [key for key in keys if key in self._stable_wanted_ms]
        return await _offsets(peer, wanted, LATEST, READ_COMMITTED) if wanted else {}


def _readable(ends: PartitionEnds, *, is_transactional: bool) -> ReadableOffsets | None:
    end = ends.last_stable_offset if is_transactional else ends.high_watermark
    return None if end is None else ReadableOffsets(ends.log_start_offset, end)


async def _offsets(
    peer: Peer, keys: Sequence[TopicPartition], timestamp: int, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Raises PeerError."""
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in keys:
        by_topic.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    topics = [ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    request = ListOffsetsRequest(replica_id=CONSUMER, isolation_level=isolation_level, topics=topics)
    return dict(_found(await peer.ask(request)))


def _found(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int]]:
    for topic in response.topics:
        for partition in topic.partitions:
            if not partition.error_code and partition.offset >= 0:
                yield (topic.name, partition.partition_index), partition.offset
