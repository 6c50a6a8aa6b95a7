"""A follower of one leader in one term: where it fetches, and how its log becomes a prefix of the leader's.

| state        | requests                                            | what ends it                                  |
|--------------|-----------------------------------------------------|-----------------------------------------------|
| TRUNCATING   | OffsetForLeaderEpoch for its own latest epoch       | the response: where to truncate (§14.5.3)     |
| FETCHING     | Fetch from its log end, with the epoch it ends with | logs that (may) diverge, offset out of range  |
| OUT_OF_RANGE | ListOffsets: the leader's end, then its start       | the log is truncated or stays (§14.5.4)       |
| AWAITING_LOG | nothing                                             | the shell has truncated the log, or could not |
| FENCED       | nothing                                             | a new term, which has another follower        |
| FAILED       | nothing                                             | a new term                                    |

A follower touches no file. What is to be done to its log it returns as an effect; the shell does it, and calls
`performed` with what came of it. Until then the log is what it was.

A log with epochs begins in TRUNCATING (R02). Every fetch carries the last epoch too, so that a leader that reconciles
only later, or a log that changed in between, is noticed before an offset counts for anything (§14.5.6).

The position is that of the log, nothing is kept twice. Each request carries the leader epoch, and its response counts
only while the same request would be sent again (§14.4.3): a response of an earlier term must never truncate.
"""

from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.errors import CorruptMessage, ErrorCode
from ottla.replication.follower_effects import (
    AppendRecords,
    BackedOff,
    Effect,
    Failed,
    Fenced,
    Fetched,
    LogEffect,
    Restarted,
    RestartLog,
    Truncate,
    Truncated,
)
from ottla.replication.partition import Partition

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
UNDEFINED = -1

# A leader may learn of its term a moment later than its followers: the first retries come soon.
BACK_OFF_MS_FIRST = 25


class FollowerState(Enum):
    TRUNCATING = auto()
    FETCHING = auto()
    OUT_OF_RANGE = auto()
    AWAITING_LOG = auto()
    FENCED = auto()
    FAILED = auto()


_S = FollowerState
ASKING = frozenset({_S.TRUNCATING, _S.FETCHING, _S.OUT_OF_RANGE})
VALID_PREVIOUS = {
    _S.TRUNCATING: {_S.AWAITING_LOG},
    _S.FETCHING: {_S.AWAITING_LOG, _S.OUT_OF_RANGE},
    _S.OUT_OF_RANGE: {_S.FETCHING},
    _S.AWAITING_LOG: ASKING,
    _S.FENCED: ASKING,
    _S.FAILED: ASKING | {_S.AWAITING_LOG},
}


class FetchPosition(NamedTuple):
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class EpochRequest(NamedTuple):
    leader_epoch: int
    current_leader_epoch: int


class OffsetRequest(NamedTuple):
    timestamp: int
    current_leader_epoch: int


FollowerRequest: TypeAlias = FetchPosition | EpochRequest | OffsetRequest


class ReplicaFollower:
    __slots__ = (
        "_asks_for_start",
        "_back_off_ms",
        "_back_off_ms_max",
        "_has_compared",
        "_leader_high_watermark",
        "_state_after",
        "key",
        "leader_epoch",
        "partition",
        "ready_ms",
        "state",
    )

    def __init__(self, partition: Partition, *, back_off_ms_max: int) -> None:
        """Follows in the term that `partition` is in now. Call `start` before anything else."""
        self.partition = partition
        self.key = partition.topic_id, partition.index
        self.leader_epoch = partition.leader_epoch
        self.state = FollowerState.TRUNCATING if partition.log.epochs.entries else FollowerState.FETCHING
        # It requests nothing before.
        self.ready_ms = 0
        self._back_off_ms = 0
        self._back_off_ms_max = back_off_ms_max
        self._leader_high_watermark: int | None = None
        # Whether the leader has accepted an offset and epoch of this log, and said how far its own is deleted.
        self._has_compared = False
        self._asks_for_start = False
        # The state that the end of AWAITING_LOG leads to.
        self._state_after = FollowerState.FETCHING

    def __repr__(self) -> str:
        partition = self.partition
        return f"<ReplicaFollower {partition.topic}-{partition.index} {self.state.name}, epoch {self.leader_epoch}>"

    def start(self) -> list[Effect]:
        """Without epochs, nothing but the high watermark says which records the leader has too (§14.4.1)."""
        if self.partition.log.failure is not None:
            return [self._fail(self.partition.log.failure)]
        if self.state is FollowerState.FETCHING:
            return [self._truncate(self.partition.high_watermark, FollowerState.FETCHING)]
        return []

    # Requests.

    @property
    def is_asking(self) -> bool:
        return self.state in ASKING

    def is_ready(self, now_ms: int) -> bool:
        return self.state in ASKING and now_ms >= self.ready_ms

    def request(self) -> FollowerRequest:
        """What to ask the leader now; its type says in which request."""
        match self.state:
            case FollowerState.TRUNCATING:
                return EpochRequest(self.partition.log.epochs.latest_epoch, self.leader_epoch)
            case FollowerState.OUT_OF_RANGE:
                timestamp = EARLIEST_TIMESTAMP if self._asks_for_start else LATEST_TIMESTAMP
                return OffsetRequest(timestamp, self.leader_epoch)
            case _:
                return self.position()

    @property
    def lags(self) -> bool:
        """Whether it lacks records below the leader's high watermark, as of the last response; before any, it does."""
        high_watermark = self._leader_high_watermark
        return high_watermark is None or self.partition.log.log_end_offset < high_watermark

    def position(self) -> FetchPosition:
        log = self.partition.log
        return FetchPosition(log.log_end_offset, log.log_start_offset, self.leader_epoch, log.epochs.latest_epoch)

    def is_current(self, request: FollowerRequest) -> bool:
        """Whether the response to it still counts."""
        if self.partition.leader_epoch != self.leader_epoch:
            return False
        if isinstance(request, FetchPosition):
            # Retention may have raised the log start since; that decides nothing.
            log = self.partition.log
            return (
                self.state is FollowerState.FETCHING
                and request.fetch_offset == log.log_end_offset
                and request.last_fetched_epoch == log.epochs.latest_epoch
                and request.current_leader_epoch == self.leader_epoch
            )
        return self.state in ASKING and request == self.request()

    # Syncing.

    @property
    def needs_sync(self) -> bool:
        """Whether the log end may not be reported to the leader yet."""
        return self.state is FollowerState.FETCHING and self.partition.log.needs_flush

    def synced(self) -> list[Effect]:
        """The log was synced, or could not be: then it refuses everything, and the replica has failed."""
        failure = self.partition.log.failure
        return [] if failure is None or not self.is_asking else [self._fail(failure)]

    # Responses.

    def handle_response(self, request: FollowerRequest, response: Any, *, now_ms: int) -> list[Effect] | None:
        """`response` is the part of it that is about this partition. None: it does not count any more."""
        if not self.is_current(request):
            return None
        if response.error_code:
            return self._refused(response.error_code, now_ms)
        self._back_off_ms = 0
        match request:
            case EpochRequest():
                return [self._reconcile(response.leader_epoch, response.end_offset)]
            case OffsetRequest():
                return self._come_into_range(response.offset, now_ms)
            case FetchPosition() if response.diverging_epoch is not None:
                return [self._reconcile(response.diverging_epoch.epoch, response.diverging_epoch.end_offset)]
            case FetchPosition() if not self._has_compared and self._is_all_in_doubt(response.log_start_offset):
                return [self._restart(response.log_start_offset)]
            case FetchPosition() if response.records:
                self._has_compared = True
                partition, end_offset = self.partition, self.partition.log.log_end_offset
                high_watermark, start_offset = response.high_watermark, response.log_start_offset
                self._leader_high_watermark = high_watermark
                return [AppendRecords(partition, response.records, end_offset, high_watermark, start_offset)]
            case FetchPosition():
                self._has_compared = True
                self._leader_high_watermark = response.high_watermark
                rose = self.partition.maybe_update_high_watermark(response.high_watermark, response.log_start_offset)
                return [Fetched(self.partition, 0, rose)] if rose else []

    def _refused(self, code: int, now_ms: int) -> list[Effect]:
        match code:
            case ErrorCode.OFFSET_OUT_OF_RANGE if self.state is FollowerState.FETCHING:
                self._asks_for_start = False
                self._transition_to(FollowerState.OUT_OF_RANGE)
                return []
            case ErrorCode.FENCED_LEADER_EPOCH:
                self._transition_to(FollowerState.FENCED)
                return [Fenced(self.partition)]
            case _:
                error = ErrorCode(code) if code in _KNOWN_CODES else ErrorCode.UNKNOWN_SERVER_ERROR
                return [self._back_off(error, "the leader refuses", now_ms)]

    # Truncation.

    def _reconcile(self, epoch: int, end_offset: int) -> Effect:
        offset, is_finished = self.truncation_point(epoch, end_offset)
        return self._truncate(offset, FollowerState.FETCHING if is_finished else FollowerState.TRUNCATING)

    def truncation_point(self, epoch: int, end_offset: int) -> tuple[int, bool]:
        """Where to truncate, given the leader's response, and whether the logs agree then (§14.5.3)."""
        log = self.partition.log
        if end_offset == UNDEFINED:
            return self.partition.high_watermark, True
        ours, our_end = (UNDEFINED, UNDEFINED) if epoch == UNDEFINED else log.end_offset_for_epoch(epoch)
        if our_end == UNDEFINED:
            return min(end_offset, log.log_end_offset), True
        if ours == epoch:
            return min(our_end, end_offset, log.log_end_offset), True
        # We have nothing of the epoch the leader speaks of. What we have of the one before it may diverge as well.
        return min(our_end, log.log_end_offset), False

    def _truncate(self, offset: int, state_after: FollowerState) -> Effect:
        self._state_after = state_after
        self._transition_to(FollowerState.AWAITING_LOG)
        return Truncate(self.partition, offset, self.partition.log.log_end_offset, self.partition.high_watermark)

    def _come_into_range(self, leader_offset: int, now_ms: int) -> list[Effect]:
        """§14.5.4"""
        end_offset = self.partition.log.log_end_offset
        if not self._asks_for_start:
            if leader_offset < end_offset:
                return [self._truncate(leader_offset, FollowerState.FETCHING)]
            self._asks_for_start = True
            return []
        if leader_offset <= end_offset:
            self._transition_to(FollowerState.FETCHING)
            return [self._back_off(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader has the offset, and refuses it", now_ms)]
        return [self._restart(leader_offset)]

    def _is_all_in_doubt(self, leader_start_offset: int) -> bool:
        """Whether the leader has deleted all that this log has, of which not all is known to be committed: it may be
        what a replaced leader wrote. This leader has forgotten the epochs that would show it, and accepts the offset
        (§14.5.4). What producers wrote there may be in no other log, so that none of it may be taken for stored."""
        end_offset = self.partition.log.log_end_offset
        return self.partition.high_watermark < end_offset <= leader_start_offset

    def _restart(self, offset: int) -> Effect:
        self._state_after = FollowerState.FETCHING
        self._transition_to(FollowerState.AWAITING_LOG)
        return RestartLog(self.partition, offset, self.partition.log.log_end_offset)

    # What the shell has done to the log.

    def performed(self, effect: LogEffect, error: Exception | None, now_ms: int) -> list[Effect]:
        """The log is as the effect wants it; or it is not, because of `error`."""
        if error is not None:
            if isinstance(error, CorruptMessage) and isinstance(effect, AppendRecords):
                return [self._back_off(ErrorCode.CORRUPT_MESSAGE, str(error), now_ms)]
            return [self._fail(error)]
        end_offset = self.partition.log.log_end_offset
        match effect:
            case AppendRecords():
                size_bytes = len(effect.records) if end_offset > effect.log_end_offset else 0
                rose = self.partition.maybe_update_high_watermark(effect.high_watermark, effect.log_start_offset)
                return [Fetched(self.partition, size_bytes, rose)] if size_bytes or rose else []
            case Truncate():
                self._resume()
                is_shorter = end_offset < effect.log_end_offset
                return [Truncated(self.partition, effect.log_end_offset, effect.high_watermark)] if is_shorter else []
            case RestartLog():
                self._resume()
                return [Restarted(self.partition, effect.log_end_offset)]

    def _resume(self) -> None:
        state = self._state_after
        if state is FollowerState.TRUNCATING and not self.partition.log.epochs.entries:
            state = FollowerState.FETCHING
        self._transition_to(state)

    # Trouble.

    def _back_off(self, error: ErrorCode, why: str, now_ms: int) -> BackedOff:
        self._back_off_ms = min(max(2 * self._back_off_ms, BACK_OFF_MS_FIRST), self._back_off_ms_max)
        self.ready_ms = now_ms + self._back_off_ms
        return BackedOff(self.partition, error, why, self.ready_ms)

    def _fail(self, error: Exception) -> Failed:
        self._transition_to(FollowerState.FAILED)
        return Failed(self.partition, error)

    def _transition_to(self, state: FollowerState) -> None:
        assert self.state in VALID_PREVIOUS[state], f"{self.state.name} does not become {state.name}"
        self.state = state


_KNOWN_CODES = frozenset(map(int, ErrorCode))
