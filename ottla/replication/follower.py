"""A follower of one leader in one term: where it fetches, and how it makes its log a prefix of the leader's.

| state        | asks                                                | what ends it                                  |
|--------------|-----------------------------------------------------|-----------------------------------------------|
| TRUNCATING   | OffsetForLeaderEpoch for its own latest epoch       | the log is cut as far as that tells (§14.5.3) |
| FETCHING     | Fetch from its log end, with the epoch it ends with | logs that diverge, an offset out of range     |
| OUT_OF_RANGE | ListOffsets: the leader's end, then its start       | the log is cut to that, or stays (§14.5.4)    |
| FENCED       | nothing                                             | a new term, which has another `Follower`      |
| FAILED       | nothing                                             | a new term                                    |

A log with epochs begins in TRUNCATING (R02). Every fetch carries the last epoch too, so that a leader that reconciles
only later, or a log that changed in between, is noticed before an offset counts for anything (§14.5.6).

The position is that of the log, nothing is kept twice. Each question carries the leader epoch, and its answer counts
only while the same question would be asked again (§14.4.3): an answer of an earlier term must never truncate.
"""

from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.errors import CorruptMessage, ErrorCode, KafkaStorageError
from ottla.replication.facts import BackedOff, Fact, Failed, Fenced, Followed, Restarted, Truncated
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
    FENCED = auto()
    FAILED = auto()


_S = FollowerState
ASKING = frozenset({_S.TRUNCATING, _S.FETCHING, _S.OUT_OF_RANGE})
VALID_PREVIOUS = {
    _S.TRUNCATING: {_S.TRUNCATING, _S.FETCHING},
    _S.FETCHING: {_S.TRUNCATING, _S.FETCHING, _S.OUT_OF_RANGE},
    _S.OUT_OF_RANGE: {_S.FETCHING},
    _S.FENCED: ASKING,
    _S.FAILED: ASKING,
}


class FetchPosition(NamedTuple):
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class EpochQuestion(NamedTuple):
    leader_epoch: int
    current_leader_epoch: int


class OffsetQuestion(NamedTuple):
    timestamp: int
    current_leader_epoch: int


Question: TypeAlias = FetchPosition | EpochQuestion | OffsetQuestion


class Follower:
    __slots__ = (
        "_asks_for_start",
        "_back_off_ms",
        "_back_off_ms_max",
        "leader_epoch",
        "partition",
        "ready_ms",
        "state",
    )

    def __init__(self, partition: Partition, *, back_off_ms_max: int) -> None:
        """Follows in the term that `partition` is in now. Call `start` before anything else."""
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = FollowerState.TRUNCATING if partition.log.epochs.entries else FollowerState.FETCHING
        # It asks for nothing before.
        self.ready_ms = 0
        self._back_off_ms = 0
        self._back_off_ms_max = back_off_ms_max
        self._asks_for_start = False

    def __repr__(self) -> str:
        return f"<Follower {self.partition.topic}-{self.partition.index} {self.state.name}, epoch {self.leader_epoch}>"

    def start(self) -> list[Fact]:
        """Without epochs, nothing but the high watermark tells which records the leader has too (§14.4.1)."""
        if self.partition.log.failure is not None:
            return self._fail(self.partition.log.failure)
        if self.state is FollowerState.FETCHING:
            return self._truncate(self.partition.high_watermark, FollowerState.FETCHING)
        return []

    # Questions.

    @property
    def is_asking(self) -> bool:
        return self.state in ASKING

    def is_ready(self, now_ms: int) -> bool:
        return self.state in ASKING and now_ms >= self.ready_ms

    def question(self) -> Question:
        """What to ask the leader now; its type tells which request it belongs to."""
        match self.state:
            case FollowerState.TRUNCATING:
                return EpochQuestion(self.partition.log.epochs.latest_epoch, self.leader_epoch)
            case FollowerState.OUT_OF_RANGE:
                timestamp = EARLIEST_TIMESTAMP if self._asks_for_start else LATEST_TIMESTAMP
                return OffsetQuestion(timestamp, self.leader_epoch)
            case _:
                return self.position()

    def position(self) -> FetchPosition:
        log = self.partition.log
        return FetchPosition(log.log_end_offset, log.log_start_offset, self.leader_epoch, log.epochs.latest_epoch)

    def is_current(self, question: Question) -> bool:
        """Whether the answer to it still counts."""
        if self.partition.leader_epoch != self.leader_epoch:
            return False
        if isinstance(question, FetchPosition):
            # Retention may have raised the log start meanwhile; that decides nothing.
            log = self.partition.log
            return (
                self.state is FollowerState.FETCHING
                and question.fetch_offset == log.log_end_offset
                and question.last_fetched_epoch == log.epochs.latest_epoch
                and question.current_leader_epoch == self.leader_epoch
            )
        return self.state in ASKING and question == self.question()

    # Syncing.

    @property
    def needs_sync(self) -> bool:
        """Whether the log end may not be reported to the leader yet."""
        return self.state is FollowerState.FETCHING and self.partition.log.needs_flush

    def synced(self) -> list[Fact]:
        """The log was synced, or could not be: then it refuses everything, and the replica has failed."""
        failure = self.partition.log.failure
        return [] if failure is None or not self.is_asking else self._fail(failure)

    # Answers.

    def answered(self, question: Question, answer: Any, *, now_ms: int, wall_ms: int) -> list[Fact]:
        """`answer` is the part of the response that is about this partition."""
        if not self.is_current(question):
            return []
        if answer.error_code:
            return self._refused(answer.error_code, now_ms)
        self._back_off_ms = 0
        match question:
            case EpochQuestion():
                return self._reconcile(answer.leader_epoch, answer.end_offset)
            case OffsetQuestion():
                return self._come_into_range(answer.offset, now_ms)
            case FetchPosition() if answer.diverging_epoch is not None:
                return self._reconcile(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
            case FetchPosition():
                return self._follow(answer, now_ms, wall_ms)

    def _refused(self, code: int, now_ms: int) -> list[Fact]:
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
                return self._back_off(error, "the leader refuses", now_ms)

    def _follow(self, answer: Any, now_ms: int, wall_ms: int) -> list[Fact]:
        partition = self.partition
        end_offset = partition.log.log_end_offset
        try:
            if answer.records:
                partition.append_from_leader(answer.records, wall_ms=wall_ms)
            rose = partition.follow(answer.high_watermark, answer.log_start_offset)
        except CorruptMessage as error:
            return self._back_off(ErrorCode.CORRUPT_MESSAGE, str(error), now_ms)
        except (KafkaStorageError, OSError) as error:
            return self._fail(error)
        size_bytes = len(answer.records) if partition.log.log_end_offset > end_offset else 0
        return [Followed(partition, size_bytes, rose)] if size_bytes or rose else []

    # Truncation.

    def _reconcile(self, epoch: int, end_offset: int) -> list[Fact]:
        offset, is_finished = self.truncation_point(epoch, end_offset)
        return self._truncate(offset, FollowerState.FETCHING if is_finished else FollowerState.TRUNCATING)

    def truncation_point(self, epoch: int, end_offset: int) -> tuple[int, bool]:
        """Where to cut, given the leader's answer, and whether that settles it (§14.5.3)."""
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

    def _truncate(self, offset: int, following_state: FollowerState) -> list[Fact]:
        partition = self.partition
        end_offset, high_watermark = partition.log.log_end_offset, partition.high_watermark
        try:
            partition.truncate_to(offset)
        except (KafkaStorageError, OSError) as error:
            return self._fail(error)
        if following_state is FollowerState.TRUNCATING and not partition.log.epochs.entries:
            following_state = FollowerState.FETCHING
        self._transition_to(following_state)
        return [Truncated(partition, end_offset, high_watermark)] if partition.log.log_end_offset < end_offset else []

    def _come_into_range(self, leaders_offset: int, now_ms: int) -> list[Fact]:
        """§14.5.4"""
        end_offset = self.partition.log.log_end_offset
        if not self._asks_for_start:
            if leaders_offset < end_offset:
                return self._truncate(leaders_offset, FollowerState.FETCHING)
            self._asks_for_start = True
            return []
        self._transition_to(FollowerState.FETCHING)
        if leaders_offset <= end_offset:
            return self._back_off(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader has the offset, and refuses it", now_ms)
        try:
            self.partition.restart_at(leaders_offset)
        except (KafkaStorageError, OSError) as error:
            return self._fail(error)
        return [Restarted(self.partition, end_offset)]

    # Trouble.

    def _back_off(self, error: ErrorCode, why: str, now_ms: int) -> list[Fact]:
        self._back_off_ms = min(max(2 * self._back_off_ms, BACK_OFF_MS_FIRST), self._back_off_ms_max)
        self.ready_ms = now_ms + self._back_off_ms
        return [BackedOff(self.partition, error, why, self.ready_ms)]

    def _fail(self, error: Exception) -> list[Fact]:
        self._transition_to(FollowerState.FAILED)
        return [Failed(self.partition, str(error))]

    def _transition_to(self, state: FollowerState) -> None:
        assert self.state in VALID_PREVIOUS[state], f"{self.state.name} does not become {state.name}"
        self.state = state


_KNOWN_CODES = frozenset(map(int, ErrorCode))
