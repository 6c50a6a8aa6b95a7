"""One fetcher: everything this broker copies from one leader over one connection (R01).

The shell takes the `next_request`, sends it, and hands over the response, or says that none came; one at a time. What
the response means for the logs it performs, and reports. First come the partitions that have to reconcile their logs
(OffsetForLeaderEpoch), then those that fell out of range (ListOffsets), then one Fetch for all the others, in an
incremental session. A round costs as much as there are partitions with something new: only those in `_due` are looked
at.

To the leader, a fetch from an offset says that all below is here. A partition with `flush.messages` or `flush.ms` whose
sync is due says so only when the sync is done: until then it is left out, and the others fetch on without it.
So are throttled partitions that lag, while the quota is exceeded.
"""

from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.replication.fetcher_requests import (
    SYNC_WAIT_MS,
    FetcherConfig,
    FetcherRequest,
    FetchSessionHandler,
    FetchState,
    FollowerKey,
    LeaderEndpoint,
    epochs_request,
    fetch_request,
    offsets_request,
)
from ottla.replication.follower_effects import Effect, LogEffect
from ottla.replication.replica_follower import BACK_OFF_MS_FIRST, FollowerState, ReplicaFollower
from ottla.replication.replication_quota import ReplicationQuota

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetcherKey(NamedTuple):
    leader_id: int
    fetcher_id: int


class Fetcher:
    def __init__(
        self, key: FetcherKey, endpoint: LeaderEndpoint, config: FetcherConfig, quota: ReplicationQuota
    ) -> None:
        self.key = key
        self.endpoint = endpoint
        self.followers: dict[FollowerKey, ReplicaFollower] = {}
        self._config = config
        self._quota = quota
        self._session = FetchSessionHandler()
        # Followers to look at before the next request: new ones, those with a response, those whose back-off is over.
        self._due: dict[FollowerKey, ReplicaFollower] = {}
        self._backing_off: dict[FollowerKey, ReplicaFollower] = {}
        # Have records that are not synced yet, and should be.
        self._syncing: dict[FollowerKey, ReplicaFollower] = {}
        # Left out of this fetch, while the quota is exceeded.
        self._throttled: dict[FollowerKey, ReplicaFollower] = {}
        self._reconciling: dict[FollowerKey, ReplicaFollower] = {}
        self._out_of_range: dict[FollowerKey, ReplicaFollower] = {}
        # What the next Fetch may have to list, or to forget.
        self._wanted: dict[FollowerKey, FetchState] = {}
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

    def add(self, follower: ReplicaFollower) -> None:
        key = follower.key
        self._drop(key)
        self.followers[key] = follower
        self._due[key] = follower

    def remove(self, key: FollowerKey) -> ReplicaFollower | None:
        """A response that is still on its way to it is dropped."""
        follower = self.followers.pop(key, None)
        if follower is not None:
            self._drop(key)
        return follower

    def synced(self, key: FollowerKey) -> list[Effect]:
        """The log of the partition was synced, or could not be."""
        follower = self._syncing.get(key)
        if follower is None:
            return []
        effects = follower.synced()
        if not follower.needs_sync:
            self._due[key] = self._syncing.pop(key)
        return effects

    def _drop(self, key: FollowerKey) -> None:
        for waiting in (
            self._due,
            self._backing_off,
            self._syncing,
            self._throttled,
            self._reconciling,
            self._out_of_range,
            self._wanted,
        ):
            waiting.pop(key, None)
        self._unwanted[key] = None

    # Requests.

    def next_request(self, now_ms: int, broker_epoch: int) -> FetcherRequest | None:
        """What to send now; None if there is no request before `wake_ms`, or before a partition is added."""
        if now_ms < self._ready_ms:
            return None
        for key in [key for key, follower in self._backing_off.items() if follower.is_ready(now_ms)]:
            self._due[key] = self._backing_off.pop(key)
        self._unwanted |= dict.fromkeys(self._syncing)
        if self._throttled or self._quota.is_active:
            self._throttle(now_ms)
        self._sort_due(now_ms)
        if self._reconciling:
            followers, self._reconciling = self._reconciling, {}
            return epochs_request(followers.values(), self._config)
        if self._out_of_range:
            followers, self._out_of_range = self._out_of_range, {}
            return offsets_request(followers.values(), self._config)
        return self._fetch(broker_epoch)

    def wake_ms(self, now_ms: int) -> int | None:
        """When to look again after there was no next request; None: when a partition has been added."""
        if now_ms < self._ready_ms and self.followers:
            return self._ready_ms
        wake_ms = [follower.ready_ms for follower in self._backing_off.values()]
        if self._throttled:
            wake_ms.append(now_ms + max(self._config.back_off_ms, 1))
        return min(wake_ms, default=None)

    def _throttle(self, now_ms: int) -> None:
        """Leaves out the throttled partitions that lag while the quota is exceeded, and takes them in again after."""
        self._due |= self._throttled
        self._throttled = {}
        if not self._quota.is_exceeded(now_ms):
            return
        for key, follower in self.followers.items():
            if follower.state is not FollowerState.FETCHING or not follower.lags:
                continue
            if key in self._syncing or key in self._backing_off or not self._is_throttled(follower):
                continue
            self._drop(key)
            self._throttled[key] = follower

    def _is_throttled(self, follower: ReplicaFollower) -> bool:
        return self._quota.is_throttled(follower.partition.topic, follower.partition.index)

    def _sort_due(self, now_ms: int) -> None:
        due, self._due = self._due, {}
        for key, follower in due.items():
            if follower.needs_sync:
                self._drop(key)
                self._syncing[key] = follower
                continue
            if follower.state is FollowerState.FETCHING and now_ms >= follower.ready_ms:
                self._wanted[key] = FetchState(follower, follower.position())
                self._unwanted.pop(key, None)
                continue
            self._drop(key)
            if not follower.is_ready(now_ms):
                if follower.is_asking:
                    self._backing_off[key] = follower
            elif follower.state is FollowerState.TRUNCATING:
                self._reconciling[key] = follower
            else:
                self._out_of_range[key] = follower

    def _fetch(self, broker_epoch: int) -> FetcherRequest | None:
        if self._session.is_full:
            self._want_all()
        wanted, self._wanted = self._wanted, {}
        unwanted, self._unwanted = self._unwanted, {}
        session = self._session.request(wanted, unwanted)
        if not self._session.sent:
            # The leader closes a session without partitions.
            self._session.start_over()
            return None
        config = self._config
        max_wait_ms = min(config.max_wait_ms, SYNC_WAIT_MS) if self._syncing else config.max_wait_ms
        return fetch_request(session, config, broker_epoch=broker_epoch, max_wait_ms=max_wait_ms)

    def _want_all(self) -> None:
        """The first request of a session lists everything."""
        for key, follower in self.followers.items():
            if key in self._backing_off or key in self._syncing or key in self._throttled:
                continue
            if follower.state is FollowerState.FETCHING:
                self._wanted[key] = FetchState(follower, follower.position())

    # Responses.

    def handle_response(self, pending: FetcherRequest, response: Any, *, now_ms: int) -> list[Effect]:
        if isinstance(pending.request, FetchRequest):
            return self._fetched(pending, response, now_ms)
        self._back_off_ms = 0
        effects: list[Effect] = []
        is_epochs = isinstance(pending.request, OffsetForLeaderEpochRequest)
        for topic in response.topics:
            for part in topic.partitions:
                name = (topic.topic, part.partition) if is_epochs else (topic.name, part.partition_index)
                requested = pending.requested.get(name)
                if requested is not None and self._has(requested[0]):
                    effects += requested[0].handle_response(requested[1], part, now_ms=now_ms) or ()
        # Those that the leader left out ask again.
        self._look_at(pending)
        return effects

    def request_failed(self, pending: FetcherRequest, now_ms: int) -> None:
        """No response came, or none that can be read: back off, then begin a new session."""
        self._session.start_over()
        self._look_at(pending)
        self._back_off_ms = min(max(2 * self._back_off_ms, BACK_OFF_MS_FIRST), self._config.back_off_ms)
        self._ready_ms = now_ms + self._back_off_ms

    def _look_at(self, pending: FetcherRequest) -> None:
        for follower, _ in pending.requested.values():
            if self._has(follower):
                self._due[follower.key] = follower

    def _has(self, follower: ReplicaFollower) -> bool:
        """Whether it has not been removed or replaced while a response was on its way to it."""
        return self.followers.get(follower.key) is follower

    def _fetched(self, pending: FetcherRequest, response: Any, now_ms: int) -> list[Effect]:
        if response.error_code in _SESSION_ERRORS:
            self._session.start_over(close=response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return []
        if response.error_code:
            self.request_failed(pending, now_ms)
            return []
        self._back_off_ms = 0
        self._session.succeeded(response.session_id)
        effects: list[Effect] = []
        for topic in response.responses:
            for part in topic.partitions:
                effects += self._fetched_partition((topic.topic_id, part.partition_index), part, now_ms)
        return effects

    def _fetched_partition(self, key: FollowerKey, part: Any, now_ms: int) -> list[Effect]:
        state = self._session.sent.get(key)
        follower = self.followers.get(key)
        effects = None
        if state is not None and follower is not None and follower is state.follower:
            effects = follower.handle_response(state.position, part, now_ms=now_ms)
        if effects is None or follower is None:
            # The leader believes that what is dropped here has arrived.
            self._session.start_over()
            return []
        self._due[key] = follower
        if part.records and self._quota.is_active and self._is_throttled(follower):
            self._quota.record(len(part.records), now_ms)
        return effects

    def performed(self, effect: LogEffect, error: Exception | None, now_ms: int) -> list[Effect]:
        """The shell has done to a log what its follower wanted, or could not because of `error`."""
        key = (effect.partition.topic_id, effect.partition.index)
        follower = self.followers.get(key)
        if follower is None or follower.partition is not effect.partition:
            return []
        effects = follower.performed(effect, error, now_ms)
        if follower.needs_sync:
            self._due.pop(key, None)
            self._syncing[key] = follower
        return effects
