"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches and what it was last told.

    client                                 broker
    id 0, epoch 0, all partitions     →    opens a session, answers with its id
    id n, epoch 1, what has changed   →    answers only with partitions that have news
    id n, epoch 2, …
    id n, epoch -1, all partitions    →    closes it

A request that misses the expected epoch was lost or repeated on the way; it is refused, and the client opens a new
session. When the cache is full, a session that was not used for `EVICTION_MS` gives way, then the one that is worth
least; a client that gets no session is answered with id 0 and keeps sending all its partitions.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000
NEVER_TOLD = -1

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic name (up to Fetch v12) or topic id (from v13), and partition."""


class FetchTarget:
    """A partition a client fetches, from where, and in a session what it was told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "source",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        *,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        uses_topic_ids: bool = False,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.key: PartitionKey = (topic_id if uses_topic_ids else topic, partition)
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        # Of the follower that fetches.
        self.log_start_offset = log_start_offset
        self.told_high_watermark = NEVER_TOLD
        self.told_log_start_offset = NEVER_TOLD
        # The partition that tells the session of its news; only followers' sessions are told.
        self.source: Partition | None = None

    def follow(self, newer: "FetchTarget") -> None:
        """Fetch from where the client says now."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset


class Answer(Protocol):
    """What a session needs to know of one partition of a fetch response."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    records: Any
    diverging_epoch: Any
    preferred_read_replica: int


class FetchSession:
    __slots__ = ("created_ms", "epoch", "id", "is_follower", "last_used_ms", "targets", "uses_topic_ids")

    def __init__(self) -> None:
        # NO_SESSION until the cache has taken it in.
        self.id = NO_SESSION
        # The epoch the next request must carry.
        self.epoch = 1
        self.uses_topic_ids = False
        self.is_follower = False
        self.created_ms = 0
        self.last_used_ms = 0
        # In the order in which they are served.
        self.targets: dict[PartitionKey, FetchTarget] = {}

    def begin(self, *, uses_topic_ids: bool, is_follower: bool, now_ms: int) -> None:
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.created_ms = self.last_used_ms = now_ms

    def update(self, targets: Iterable[FetchTarget], forgotten: Iterable[PartitionKey]) -> None:
        for target in targets:
            known = self.targets.setdefault(target.key, target)
            if known is not target:
                known.follow(target)
            self.is_listed(known)
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None:
                self.is_forgotten(gone)

    def is_listed(self, target: FetchTarget) -> None:
        """The client has named it: it is new, or fetched from somewhere else."""

    def is_forgotten(self, target: FetchTarget) -> None:
        """The client does without it from now on."""

    def to_look_at(self) -> list[FetchTarget]:
        """What the next answer may have news of."""
        return list(self.targets.values())

    def was_told(self, target: FetchTarget, answer: Answer) -> None:
        """The answer leaves now. After data has been sent a partition goes to the back."""
        if answer.records and self.targets.pop(target.key, None) is not None:
            self.targets[target.key] = target

    def close(self) -> None:
        """Nobody can use it any more."""

    def worth(self) -> tuple[bool, int]:
        """Followers' sessions before consumers', larger before smaller."""
        return self.is_follower, len(self.targets)


class FetchContext:
    """One fetch request in the light of its session.

    `targets` is what to look at, and `session` the session, which for the first fetch of one is not in the cache yet;
    None for a consumer's fetch without one. End with `answered` or `abandon`."""

    __slots__ = ("_cache", "_opens", "error", "is_incremental", "session", "targets")

    def __init__(
        self,
        cache: "FetchSessionCache",
        targets: Sequence[FetchTarget],
        *,
        session: FetchSession | None = None,
        is_incremental: bool = False,
        opens: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.targets = targets
        self.session = session
        self.error = error
        self.is_incremental = is_incremental
        self._cache = cache
        self._opens = opens

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def look_again(self) -> None:
        """The request has waited; other partitions may have news now."""
        if self.is_incremental and self.session is not None:
            self.targets = self.session.to_look_at()

    def answered(self, answers: Sequence[Answer], now_ms: int) -> list[bool]:
        """Which of the answers, one per target, to send. Call it for what is really sent: it is remembered as told."""
        session = self.session
        if session is None:
            return [True] * len(answers)
        if self._opens:
            self._cache.admit(session, now_ms)
        included: list[bool] = []
        for target, answer in zip(self.targets, answers, strict=True):
            included.append(not self.is_incremental or _has_changed(target, answer))
            target.told_high_watermark = answer.high_watermark
            target.told_log_start_offset = answer.log_start_offset
            if answer.error_code or answer.diverging_epoch is not None:
                # Nobody takes a high watermark from such an answer. It is told again as soon as that has passed.
                target.told_high_watermark = NEVER_TOLD
            session.was_told(target, answer)
        self._close_if_unknown(session)
        return included

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
        if self.session is not None:
            self._close_if_unknown(self.session)

    def _close_if_unknown(self, session: FetchSession) -> None:
        if session.id == NO_SESSION:
            session.close()


def _has_changed(target: FetchTarget, answer: Answer) -> bool:
    return (
        bool(answer.records)
        or answer.diverging_epoch is not None
        or answer.error_code != 0
        or answer.preferred_read_replica >= 0
        or answer.high_watermark != target.told_high_watermark
        or answer.log_start_offset != target.told_log_start_offset
    )


class FetchSessionCache:
    def __init__(
        self, slots: int, new_id: Callable[[], int], new_follower_session: Callable[[], FetchSession] = FetchSession
    ) -> None:
        """`new_id` draws a random positive int32."""
        self._slots = slots
        self._new_id = new_id
        self._new_follower_session = new_follower_session
        # The least recently used first.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        targets: Sequence[FetchTarget],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: int,
    ) -> FetchContext:
        """What the request fetches: its own partitions, or those of its session as it changes them."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(session_id)
            return self._begin_full(epoch, targets, uses_topic_ids, is_follower, now_ms)
        session = self._sessions.get(session_id)
        if session is None or session.is_follower != is_follower:
            return FetchContext(self, (), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(self, (), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(self, (), error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(targets, forgotten)
        if not session.targets:
            self._drop(session_id)
            return FetchContext(self, ())
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchContext(self, session.to_look_at(), session=session, is_incremental=True)

    def _begin_full(
        self, epoch: int, targets: Sequence[FetchTarget], uses_topic_ids: bool, is_follower: bool, now_ms: int
    ) -> FetchContext:
        opens = epoch == INITIAL_EPOCH and bool(targets)
        if not opens and not is_follower:
            return FetchContext(self, targets)
        session = self._new_follower_session() if is_follower else FetchSession()
        session.begin(uses_topic_ids=uses_topic_ids, is_follower=is_follower, now_ms=now_ms)
        session.update(targets, ())
        return FetchContext(self, targets, session=session, opens=opens)

    def admit(self, session: FetchSession, now_ms: int) -> None:
        """Give the session an id, unless all slots are taken by others that are worth more."""
        if len(self._sessions) >= self._slots and not self._evict_for(session, now_ms):
            return
        session.id = self._new_id()
        while session.id in self._sessions or session.id == NO_SESSION:
            session.id = self._new_id()
        self._sessions[session.id] = session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _evict_for(self, newcomer: FetchSession, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self._drop(oldest.id)
            return True
        # Young sessions are left alone, so that two clients do not push each other out at every request; but a
        # follower need not wait for a consumer.
        candidates = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > EVICTION_MS or (newcomer.is_follower and not session.is_follower)
        ]
        cheapest = min(candidates, key=FetchSession.worth, default=None)
        if cheapest is None or cheapest.worth() >= newcomer.worth():
            return False
        self._drop(cheapest.id)
        return True
