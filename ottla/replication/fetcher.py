"""One fetcher: everything this broker copies from one leader over one connection (R01).

The shell asks for the `next_request`, sends it, and hands over the answer, or says that none came; one at a time. First
come the partitions that have to reconcile their logs (OffsetForLeaderEpoch), then those that fell out of range
(ListOffsets), then one Fetch for all the others, in an incremental session. A round costs as much as there are
partitions with something new: only those in `_due` are looked at.

To the leader, a fetch from an offset says that all below is here. A partition with `flush.messages` or `flush.ms` whose
sync is due says so only when the sync is done: until then it is left out, and the others fetch on without it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.replication.client_session import Asked, ClientSession, FollowerKey, SessionRequest
from ottla.replication.facts import Fact
from ottla.replication.follower import (
    BACK_OFF_MS_FIRST,
    EpochQuestion,
    Follower,
    FollowerState,
    OffsetQuestion,
    Question,
)

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


# The longest that the others' fetch waits, here or at the leader, while a partition is synced. A disk takes less; one
# that takes longer must not hold them up.
SYNC_WAIT_MS = 20


class FetcherKey(NamedTuple):
    leader_id: int
    fetcher_id: int


class Endpoint(NamedTuple):
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


class Planned(NamedTuple):
    """A request to send. `asked` is empty for a Fetch, whose session knows."""

    request: Any
    asked: dict[tuple[str, int], tuple[Follower, Question]]


Facts: TypeAlias = list[Fact]


def key_of(follower: Follower) -> FollowerKey:
    return follower.partition.topic_id, follower.partition.index


class Fetcher:
    def __init__(self, key: FetcherKey, endpoint: Endpoint, config: FetcherConfig) -> None:
        self.key = key
        self.endpoint = endpoint
        self.followers: dict[FollowerKey, Follower] = {}
        self._config = config
        self._session = ClientSession()
        # Followers that have to be looked at before the next request: new, answered, or rested.
        self._due: dict[FollowerKey, Follower] = {}
        self._resting: dict[FollowerKey, Follower] = {}
        # Have records that are not synced yet, and should be.
        self._syncing: dict[FollowerKey, Follower] = {}
        self._reconciling: dict[FollowerKey, Follower] = {}
        self._out_of_range: dict[FollowerKey, Follower] = {}
        # What the next Fetch may have to list, or to forget.
        self._wanted: dict[FollowerKey, Asked] = {}
        self._unwanted: dict[FollowerKey, None] = {}
        self._ready_ms = 0
        self._back_off_ms = 0

    def __repr__(self) -> str:
        return f"<Fetcher {self.key.fetcher_id} of broker {self.key.leader_id}, {len(self.followers)} partitions>"

    @property
    def is_empty(self) -> bool:
        return not self.followers

    @property
    def is_syncing(self) -> bool:
        """Whether a partition waits for the disk: the next request had better wait a moment for it."""
        return bool(self._syncing)

    def add(self, follower: Follower) -> None:
        key = key_of(follower)
        self._drop(key)
        self.followers[key] = follower
        self._due[key] = follower

    def remove(self, key: FollowerKey) -> Follower | None:
        """An answer that is still on its way to it is dropped."""
        follower = self.followers.pop(key, None)
        if follower is not None:
            self._drop(key)
        return follower

    def synced(self, key: FollowerKey) -> Facts:
        """The log of the partition was synced, or could not be."""
        follower = self._syncing.get(key)
        if follower is None:
            return []
        facts = follower.synced()
        if not follower.needs_sync:
            self._due[key] = self._syncing.pop(key)
        return facts

    def _drop(self, key: FollowerKey) -> None:
        for waiting in (self._due, self._resting, self._syncing, self._reconciling, self._out_of_range, self._wanted):
            waiting.pop(key, None)
        self._unwanted[key] = None

    # Asking.

    def next_request(self, now_ms: int, broker_epoch: int) -> Planned | None:
        """What to send now; None if there is nothing to ask before `wake_ms`, or before a partition is added."""
        if now_ms < self._ready_ms:
            return None
        for key in [key for key, follower in self._resting.items() if follower.is_ready(now_ms)]:
            self._due[key] = self._resting.pop(key)
        self._unwanted |= dict.fromkeys(self._syncing)
        self._sort_due(now_ms)
        if self._reconciling:
            return self._ask_epochs()
        if self._out_of_range:
            return self._ask_offsets()
        return self._fetch(broker_epoch)

    def wake_ms(self, now_ms: int) -> int | None:
        """When to look again after there was no next request; None: when a partition has been added."""
        if now_ms < self._ready_ms and self.followers:
            return self._ready_ms
        return min((follower.ready_ms for follower in self._resting.values()), default=None)

    def _sort_due(self, now_ms: int) -> None:
        due, self._due = self._due, {}
        for key, follower in due.items():
            if follower.needs_sync:
                self._drop(key)
                self._syncing[key] = follower
                continue
            if follower.state is FollowerState.FETCHING and now_ms >= follower.ready_ms:
                self._wanted[key] = Asked(follower, follower.position())
                self._unwanted.pop(key, None)
                continue
            self._drop(key)
            if not follower.is_ready(now_ms):
                if follower.is_asking:
                    self._resting[key] = follower
            elif follower.state is FollowerState.TRUNCATING:
                self._reconciling[key] = follower
            else:
                self._out_of_range[key] = follower

    def _ask_epochs(self) -> Planned:
        asking, self._reconciling = self._reconciling, {}
        topics: dict[str, OffsetForLeaderTopic] = {}
        asked: dict[tuple[str, int], tuple[Follower, Question]] = {}
        for follower in asking.values():
            partition, question = follower.partition, follower.question()
            assert isinstance(question, EpochQuestion), "a follower that reconciles asks for an epoch"
            asked[partition.topic, partition.index] = (follower, question)
            topic = topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.index,
                    current_leader_epoch=question.current_leader_epoch,
                    leader_epoch=question.leader_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=self._config.replica_id, topics=list(topics.values()))
        return Planned(request, asked)

    def _ask_offsets(self) -> Planned:
        asking, self._out_of_range = self._out_of_range, {}
        topics: dict[str, ListOffsetsTopic] = {}
        asked: dict[tuple[str, int], tuple[Follower, Question]] = {}
        for follower in asking.values():
            partition, question = follower.partition, follower.question()
            assert isinstance(question, OffsetQuestion), "a follower out of range asks for an offset"
            asked[partition.topic, partition.index] = (follower, question)
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.index,
                    current_leader_epoch=question.current_leader_epoch,
                    timestamp=question.timestamp,
                )
            )
        return Planned(ListOffsetsRequest(replica_id=self._config.replica_id, topics=list(topics.values())), asked)

    def _fetch(self, broker_epoch: int) -> Planned | None:
        if self._session.is_full:
            self._want_all()
        wanted, self._wanted = self._wanted, {}
        unwanted, self._unwanted = self._unwanted, {}
        session = self._session.request(wanted, unwanted)
        if not self._session.told:
            # The leader closes a session without partitions.
            self._session.start_over()
            return None
        return Planned(self._fetch_request(session, broker_epoch), {})

    def _want_all(self) -> None:
        """A new session has to be told of everything."""
        for key, follower in self.followers.items():
            if key not in self._resting and key not in self._syncing and follower.state is FollowerState.FETCHING:
                self._wanted[key] = Asked(follower, follower.position())

    def _fetch_request(self, session: SessionRequest, broker_epoch: int) -> FetchRequest:
        config = self._config
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
        return FetchRequest(
            replica_state=ReplicaState(replica_id=config.replica_id, replica_epoch=broker_epoch),
            max_wait_ms=min(config.max_wait_ms, SYNC_WAIT_MS) if self._syncing else config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    # Hearing.

    def answered(self, planned: Planned, response: Any, *, now_ms: int, wall_ms: int) -> Facts:
        if isinstance(planned.request, FetchRequest):
            return self._fetched(planned, response, now_ms, wall_ms)
        self._back_off_ms = 0
        facts: Facts = []
        for topic in response.topics:
            for answer in topic.partitions:
                name, index = (
                    (topic.topic, answer.partition)
                    if isinstance(planned.request, OffsetForLeaderEpochRequest)
                    else (topic.name, answer.partition_index)
                )
                asked = planned.asked.get((name, index))
                if asked is not None and self._follows(asked[0]):
                    facts += asked[0].answered(asked[1], answer, now_ms=now_ms, wall_ms=wall_ms)
        # Those that the leader left out ask again.
        self._look_at(planned)
        return facts

    def failed(self, planned: Planned, now_ms: int) -> None:
        """No answer came, or none that can be read: rest, then begin a new session."""
        self._session.start_over()
        self._look_at(planned)
        self._back_off_ms = min(max(2 * self._back_off_ms, BACK_OFF_MS_FIRST), self._config.back_off_ms)
        self._ready_ms = now_ms + self._back_off_ms

    def _look_at(self, planned: Planned) -> None:
        for follower, _ in planned.asked.values():
            if self._follows(follower):
                self._due[key_of(follower)] = follower

    def _follows(self, follower: Follower) -> bool:
        """Whether it has not been removed or replaced while an answer was on its way to it."""
        return self.followers.get(key_of(follower)) is follower

    def _fetched(self, planned: Planned, response: Any, now_ms: int, wall_ms: int) -> Facts:
        if response.error_code in _SESSION_ERRORS:
            self._session.start_over(close=response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return []
        if response.error_code:
            self.failed(planned, now_ms)
            return []
        self._back_off_ms = 0
        self._session.answered(response.session_id)
        facts: Facts = []
        for topic in response.responses:
            for answer in topic.partitions:
                facts += self._fetched_partition((topic.topic_id, answer.partition_index), answer, now_ms, wall_ms)
        return facts

    def _fetched_partition(self, key: FollowerKey, answer: Any, now_ms: int, wall_ms: int) -> Facts:
        asked = self._session.told.get(key)
        follower = self.followers.get(key)
        if (
            asked is None
            or follower is None
            or follower is not asked.follower
            or not follower.is_current(asked.position)
        ):
            # The leader believes that we were told what is dropped here.
            self._session.start_over()
            return []
        facts = follower.answered(asked.position, answer, now_ms=now_ms, wall_ms=wall_ms)
        waiting = self._syncing if follower.needs_sync else self._due
        waiting[key] = follower
        return facts
