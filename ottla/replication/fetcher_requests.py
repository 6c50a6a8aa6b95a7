"""A fetcher's requests to its leader: epochs to reconcile, offsets to get into range, one Fetch for the rest.

A Fetch belongs to an incremental session (KIP-227), of which the handler keeps what the leader knows already: a full
request lists everything and asks for a session; incremental ones list what changed and forget what went. After any
doubt about what the leader knows, a lost response or an error, the next request is full.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.replication.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from ottla.replication.replica_follower import (
    EpochRequest,
    FetchPosition,
    FollowerRequest,
    OffsetRequest,
    ReplicaFollower,
)

FollowerKey: TypeAlias = tuple[bytes, int]
"""Topic id and partition: between brokers, names are not enough."""


class FetchState(NamedTuple):
    """From where a partition is fetched, and for which follower."""

    follower: ReplicaFollower
    position: FetchPosition


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    listed: dict[FollowerKey, FetchState]
    forgotten: list[FollowerKey]

    @property
    def is_full(self) -> bool:
        return self.epoch == INITIAL_EPOCH


class FetchSessionHandler:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # What the leader serves in this session: as it was listed last.
        self.sent: dict[FollowerKey, FetchState] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request has to list all partitions."""
        return self._epoch == INITIAL_EPOCH

    def request(self, wanted: dict[FollowerKey, FetchState], unwanted: Iterable[FollowerKey] = ()) -> SessionRequest:
        """`wanted` is everything for a full request, else what may have changed; `unwanted` what is not fetched now."""
        if self.is_full:
            self.sent = dict(wanted)
            return SessionRequest(self._id, self._epoch, wanted, [])
        listed = {key: state for key, state in wanted.items() if self.sent.get(key) != state}
        self.sent |= listed
        forgotten = [key for key in unwanted if self.sent.pop(key, None) is not None]
        return SessionRequest(self._id, self._epoch, listed, forgotten)

    def succeeded(self, session_id: int) -> None:
        """A request of this session succeeded."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._id, self._epoch = session_id, 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def start_over(self, *, close: bool = True) -> None:
        """The next request is full; it closes the old session if the leader may still have it."""
        self._id = self._id if close else NO_SESSION
        self._epoch = INITIAL_EPOCH


# The longest that the others' fetch waits, here or at the leader, while a partition is synced. A disk takes less; one
# that takes longer must not hold them up.
SYNC_WAIT_MS = 20


class LeaderEndpoint(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    """The `replica.fetch.*` settings of this broker, with their defaults."""

    replica_id: int
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 4 * 1024**2
    max_bytes: int = 10 * 1024**2
    back_off_ms: int = 1000


Requested: TypeAlias = dict[tuple[str, int], tuple[ReplicaFollower, FollowerRequest]]


class FetcherRequest(NamedTuple):
    """A request to send, or one that waits for its response. A Fetch leaves `requested` empty: its session knows."""

    request: Any
    requested: Requested


def epochs_request(followers: Iterable[ReplicaFollower], config: FetcherConfig) -> FetcherRequest:
    """OffsetForLeaderEpoch for followers that have to reconcile their logs."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    requested: Requested = {}
    for follower in followers:
        partition, request = follower.partition, follower.request()
        assert isinstance(request, EpochRequest), "a follower that reconciles asks for an epoch"
        requested[partition.topic, partition.index] = (follower, request)
        topic = topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=partition.index,
                current_leader_epoch=request.current_leader_epoch,
                leader_epoch=request.leader_epoch,
            )
        )
    return FetcherRequest(
        OffsetForLeaderEpochRequest(replica_id=config.replica_id, topics=list(topics.values())), requested
    )


def offsets_request(followers: Iterable[ReplicaFollower], config: FetcherConfig) -> FetcherRequest:
    """ListOffsets for followers whose log end is not in the leader's log."""
    topics: dict[str, ListOffsetsTopic] = {}
    requested: Requested = {}
    for follower in followers:
        partition, request = follower.partition, follower.request()
        assert isinstance(request, OffsetRequest), "a follower out of range asks for an offset"
        requested[partition.topic, partition.index] = (follower, request)
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.index,
                current_leader_epoch=request.current_leader_epoch,
                timestamp=request.timestamp,
            )
        )
    return FetcherRequest(ListOffsetsRequest(replica_id=config.replica_id, topics=list(topics.values())), requested)


def fetch_request(
    session: SessionRequest, config: FetcherConfig, *, broker_epoch: int, max_wait_ms: int
) -> FetcherRequest:
    topics: dict[bytes, FetchTopic] = {}
    for follower, position in session.listed.values():
        partition = follower.partition
        topic = topics.setdefault(partition.topic_id, FetchTopic(topic_id=partition.topic_id))
        topic.partitions.append(
            FetchPartition(
                partition=partition.index,
                current_leader_epoch=position.current_leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=config.partition_max_bytes,
            )
        )
    forgotten: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in session.forgotten:
        forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=config.replica_id, replica_epoch=broker_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=config.min_bytes,
        max_bytes=config.max_bytes,
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )
    return FetcherRequest(request, {})
