"""Markers on their way from the coordinator of a transaction to the leaders of its partitions (§13.5.4).

Each broker has a queue and at most one request under way; partitions that this broker leads get their markers without
one. A marker that a leader could not write, or whose answer was
lost, is sent again later, to the leader of that time: writing it twice does no harm. However many wait, a step of the
loop handles a few of them (`MarkerTurns`). What a partition of
`__transaction_state` has asked for is forgotten when this broker resigns from it: its next leader asks for all of it
again. There are never more markers than partitions in transactions that are decided and not complete.

A decision that was loaded is none yet while the high watermark has not passed what was loaded: another leader may
cut it off and decide otherwise. Its markers wait.

A partition that the metadata does not have was deleted, and is done: this broker was elected after the partition was
registered, and its metadata are not older than that.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.broker.coordinators.coordinator_topic import MetadataCache, Replicas, has_committed_what_it_loaded
from ottla.broker.coordinators.hosted_partition import HostedPartition
from ottla.broker.coordinators.marker_turns import ORDERS_PER_STEP, MarkerTurns
from ottla.broker.runtime import Runtime, next_step
from ottla.broker.server.network import Network
from ottla.broker.server.peer_connection import KeptPeer, PeerError
from ottla.cluster.image import MetadataImage
from ottla.coordinator.transactions.events import MarkersWritten, WriteMarkers
from ottla.coordinator.transactions.participants import Participant
from ottla.coordinator.transactions.records import by_topic
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.protocol.address import Address
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.security.client import LoginCredentials

# Some milliseconds of the leader's time; further markers wait for the next request.
PARTITIONS_PER_REQUEST: Final = 1000
# Each is built, encoded and answered by itself.
ORDERS_PER_REQUEST: Final = 100
RETRY_MS: Final = 100
RETRY_MS_MAX: Final = 1000

MarkersDone = Callable[[Sequence[ErrorCode]], None]
MarkerWriter = Callable[[WriteMarkers, Sequence[Participant], int, MarkersDone], None]
"""Writes the markers of a command into some of its partitions, with the coordinator's epoch; then calls back once with
the outcome of each, perhaps before it returns."""

_DONE: Final = {
    ErrorCode.NONE,
    # Nothing can have been written there.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
}
_PASSES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
_FENCED: Final = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}


class _Order:
    """What one partition of `__transaction_state` has asked for."""

    __slots__ = ("command", "hosted", "is_fenced")

    def __init__(self, hosted: HostedPartition[TransactionShard], command: WriteMarkers) -> None:
        self.hosted = hosted
        self.command = command
        # A newer coordinator or epoch is at work: no more markers of it are sent.
        self.is_fenced = False

    @property
    def is_void(self) -> bool:
        return self.is_fenced or self.hosted.is_unloaded

    def report_written(self, partitions: Iterable[Participant]) -> None:
        """Also of a transaction whose other markers are refused."""
        written = frozenset(partitions)
        if written and not self.hosted.is_unloaded:
            self.hosted.handle(MarkersWritten(self.command.transactional_id, self.command.number, written))


class _Markers(NamedTuple):
    """Those of an order for one leader, or that wait to be sent again."""

    order: _Order
    partitions: tuple[Participant, ...]
    failures: int = 0

    def is_of_same_attempt(self, other: "_Markers") -> bool:
        return (self.order, self.failures) == (other.order, other.failures)


class MarkerSender:
    def __init__(
        self,
        runtime: Runtime,
        replicas: Replicas,
        metadata: MetadataCache,
        network: Network,
        write_here: MarkerWriter,
        *,
        inter_broker_listener: str,
        login: LoginCredentials | None,
    ) -> None:
        """`write_here` is for partitions that this broker leads, PARTITIONS_PER_STEP (`marker_turns`) at once."""
        self._runtime = runtime
        self._replicas = replicas
        self._metadata = metadata
        self._network = network
        self._write_here = write_here
        self._inter_broker_listener = inter_broker_listener
        self._login = login
        self._queues: dict[int, deque[_Markers]] = {}
        self._peers: dict[int, KeptPeer] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._under_way: dict[int, list[_Markers]] = {}
        self._under_way_here: set[_Markers] = set()
        self._turns: MarkerTurns[_Markers] = MarkerTurns(runtime, lambda markers: self._route(markers), _some)
        self._is_stopped = False

    def send(self, hosted: HostedPartition[TransactionShard], command: WriteMarkers) -> None:
        """Until all are written, or `hosted` is unloaded."""
        # The partition is in the middle of a step: what is deleted is reported in one of its own.
        self._turns.add(_Markers(_Order(hosted, command), command.partitions))

    def queued_by_broker(self) -> dict[int, int]:
        """How many partitions wait for their marker, queued or under way, by the broker to which it goes."""
        counts = {
            leader: _partition_count(queue) + _partition_count(self._under_way.get(leader, ()))
            for leader, queue in self._queues.items()
        }
        if self._under_way_here:
            counts[self._runtime.node_id] = _partition_count(self._under_way_here)
        return counts

    @property
    def waiting_again(self) -> int:
        """How many partitions wait for their marker to be sent again, for a leader, or for their turn."""
        return sum(count for markers, count in self._turns.waiting() if not markers.order.is_void)

    def stop(self) -> None:
        """What is under way ends; its partitions are unloaded."""
        self._is_stopped = True
        for task in self._tasks.values():
            task.cancel()
        for peer in self._peers.values():
            peer.close()
        self._turns.stop()
        self._queues.clear()

    # To the leader of each partition.

    def _route(self, markers: _Markers) -> None:
        if markers.order.is_void or self._is_stopped:
            return
        hosted = markers.order.hosted
        if not has_committed_what_it_loaded(self._replicas, hosted):
            self._retry(markers)
            return
        image = self._metadata.image
        by_leader: dict[int | None, list[Participant]] = {}
        deleted: list[Participant] = []
        for topic, index in markers.partitions:
            if image.partition(topic, index) is None:
                deleted.append((topic, index))
            else:
                by_leader.setdefault(_live_leader(image, topic, index), []).append((topic, index))
        for leader, partitions in by_leader.items():
            part = markers._replace(partitions=tuple(partitions))
            if leader is None:
                self._retry(part)
            elif leader == self._runtime.node_id:
                self._write_here_now(part)
            else:
                self._enqueue(leader, part)
        markers.order.report_written(deleted)

    def _retry(self, markers: _Markers) -> None:
        wait_ms = min(RETRY_MS << min(markers.failures, 10), RETRY_MS_MAX)
        if not self._is_stopped:
            self._turns.add_later(markers._replace(failures=markers.failures + 1), wait_ms)

    def _fail_unexpectedly(self, leader: int, batch: list[_Markers], error: Exception) -> None:
        self._runtime.log.error("unhandled error in writing markers", broker=leader, exc_info=error)
        self._retry_all(batch)

    def _retry_all(self, batch: list[_Markers]) -> None:
        for each in batch:
            self._retry(each)

    def _write_here_now(self, markers: _Markers) -> None:
        order = markers.order
        done = partial(self._written_here, markers)
        self._under_way_here.add(markers)
        try:
            self._write_here(order.command, markers.partitions, order.hosted.leader_epoch, done)
        except Exception as error:
            self._under_way_here.discard(markers)
            self._fail_unexpectedly(self._runtime.node_id, [markers], error)

    def _written_here(self, markers: _Markers, codes: Sequence[ErrorCode]) -> None:
        if markers in self._under_way_here:
            self._under_way_here.remove(markers)
            self._handle_results(markers, dict(zip(markers.partitions, codes, strict=True)))

    def _enqueue(self, leader: int, markers: _Markers) -> None:
        self._queues.setdefault(leader, deque()).append(markers)
        if leader not in self._tasks:
            self._tasks[leader] = self._runtime.spawn(self._send_all(leader), f"markers to broker {leader}")

    async def _send_all(self, leader: int) -> None:
        """One request after the other, while anything is queued."""
        try:
            while batch := self._take(leader):
                self._under_way[leader] = batch
                try:
                    await self._send_batch(leader, batch)
                except Exception as error:
                    self._fail_unexpectedly(leader, batch, error)
                del self._under_way[leader]
        finally:
            del self._tasks[leader]

    def _take(self, leader: int) -> list[_Markers]:
        queue = self._queues.get(leader, deque())
        batch: list[_Markers] = []
        count = 0
        # The response names markers by their producer id, so a request has an id once.
        places: dict[int, int] = {}
        while queue and count < PARTITIONS_PER_REQUEST and len(batch) < ORDERS_PER_REQUEST:
            first = queue[0]
            if first.order.is_void:
                queue.popleft()
                continue
            place = places.setdefault(first.order.command.producer_id, len(batch))
            if place == len(batch):
                batch.append(first)
            elif batch[place].is_of_same_attempt(first):
                batch[place] = first._replace(partitions=batch[place].partitions + first.partitions)
            else:
                break
            count += len(queue.popleft().partitions)
        return batch

    async def _send_batch(self, leader: int, batch: list[_Markers]) -> None:
        request = WriteTxnMarkersRequest(markers=[_marker(each) for each in batch])
        try:
            response = await self._ask(leader, request)
        except PeerError as error:
            self._runtime.log.info("markers could not be sent", broker=leader, error=str(error))
            self._retry_all(batch)
            return
        results = _results(response)
        for number, each in enumerate(batch, 1):
            if number % ORDERS_PER_STEP == 0:
                await next_step()
            self._handle_results(each, results.get(each.order.command.producer_id, {}))

    async def _ask(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        broker = self._metadata.image.brokers.get(leader)
        if broker is None:
            raise PeerError("the broker is not in the metadata")
        kept = self._peers.get(leader)
        if kept is None:
            kept = self._peers[leader] = KeptPeer(self._runtime, self._network, self._login, "markers")
        peer = await kept.connected(Address(*broker.endpoint(self._inter_broker_listener)))
        response: WriteTxnMarkersResponse = await peer.ask(request)
        return response

    # The outcome.

    def _handle_results(self, markers: _Markers, codes: dict[Participant, ErrorCode]) -> None:
        order = markers.order
        if order.hosted.is_unloaded:
            return
        written: list[Participant] = []
        failed: list[Participant] = []
        for partition in markers.partitions:
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _DONE:
                written.append(partition)
                continue
            failed.append(partition)
            order.is_fenced |= code in _FENCED
            if code not in _PASSES:
                self._log_refusal(markers, partition, code)
        if failed and not order.is_void:
            self._retry(markers._replace(partitions=tuple(failed)))
        order.report_written(written)

    def _log_refusal(self, markers: _Markers, partition: Participant, code: ErrorCode) -> None:
        """A coordinator that was replaced, and does not know it yet, is refused: its successor writes the marker."""
        command = markers.order.command
        fields = {
            "transactional_id": command.transactional_id,
            "producer_id": command.producer_id,
            "producer_epoch": command.producer_epoch,
            "topic": partition[0],
            "partition": partition[1],
            "error": code.name,
        }
        if code in _FENCED:
            self._runtime.log.info("a marker is left to a newer coordinator or producer", **fields)
        else:
            self._runtime.log.error("a marker could not be written", **fields)


def _some(markers: _Markers, begin: int, end: int) -> _Markers:
    is_all = end - begin == len(markers.partitions)
    return markers if is_all else markers._replace(partitions=markers.partitions[begin:end])


def _partition_count(markers: Iterable[_Markers]) -> int:
    return sum(len(each.partitions) for each in markers if not each.order.is_void)


def _live_leader(image: MetadataImage, topic: str, index: int) -> int | None:
    state = image.partition(topic, index)
    leader = None if state is None else image.brokers.get(state.leader)
    return leader.node_id if leader is not None and leader.is_live else None


def _marker(markers: _Markers) -> WritableTxnMarker:
    command = markers.order.command
    topics = by_topic(frozenset(markers.partitions))
    return WritableTxnMarker(
        producer_id=command.producer_id,
        producer_epoch=command.producer_epoch,
        transaction_result=command.commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=markers.order.hosted.leader_epoch,
        transaction_version=command.client_version,
    )


def _results(response: WriteTxnMarkersResponse) -> dict[int, dict[Participant, ErrorCode]]:
    results: dict[int, dict[Participant, ErrorCode]] = {}
    for marker in response.markers:
        codes = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                codes[topic.name, partition.partition_index] = ErrorCode(partition.error_code)
    return results
