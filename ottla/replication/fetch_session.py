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
from typing import Any, Protocol, TypeAlias

from ottla.protocol.errors import ErrorCode

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


class FetchSession:
    __slots__ = ("created_ms", "epoch", "id", "is_follower", "last_used_ms", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, is_follower: bool, now_ms: int) -> None:
        self.id = session_id
        # The epoch the next request must carry.
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        # In the order in which they are served.
        self.targets: dict[PartitionKey, FetchTarget] = {}

    def update(self, targets: Iterable[FetchTarget], forgotten: Iterable[PartitionKey]) -> None:
        for target in targets:
            known = self.targets.get(target.key)
            if known is None:
                self.targets[target.key] = target
            else:
                known.follow(target)
        for key in forgotten:
            self.targets.pop(key, None)

    def worth(self) -> tuple[bool, int]:
        """Followers' sessions before consumers', larger before smaller."""
        return self.is_follower, len(self.targets)


class FetchContext:
    """One fetch request in the light of its session; `session` is None for a fetch without one."""

    __slots__ = ("_cache", "_is_follower", "_opens", "_uses_topic_ids", "error", "is_incremental", "session", "targets")

    def __init__(
        self,
        cache: "FetchSessionCache",
        targets: Sequence[FetchTarget],
        *,
        session: FetchSession | None = None,
        opens: bool = False,
        uses_topic_ids: bool = False,
        is_follower: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.targets = targets
        self.session = session
        self.error = error
        self.is_incremental = session is not None
        self._cache = cache
        self._opens = opens
        self._uses_topic_ids = uses_topic_ids
        self._is_follower = is_follower

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def answered(self, answers: Sequence[Answer], now_ms: int) -> list[bool]:
        """Which of the answers, one per target, to send. Call it for what is really sent: it is remembered as told."""
        if self._opens:
            self.session = self._cache.create(
                self.targets, uses_topic_ids=self._uses_topic_ids, is_follower=self._is_follower, now_ms=now_ms
            )
        session = self.session
        if session is None:
            return [True] * len(answers)
        included: list[bool] = []
        for target, answer in zip(self.targets, answers, strict=True):
            included.append(not self.is_incremental or _has_changed(target, answer))
            target.told_high_watermark = answer.high_watermark
            target.told_log_start_offset = answer.log_start_offset
            if answer.error_code or answer.diverging_epoch is not None:
                # Nobody takes a high watermark from such an answer. It is told again as soon as that has passed.
                target.told_high_watermark = NEVER_TOLD
            if answer.records and session.targets.pop(target.key, None) is not None:
                session.targets[target.key] = target
        return included


def _has_changed(target: FetchTarget, answer: Answer) -> bool:
    return (
        bool(answer.records)
        or answer.diverging_epoch is not None
        or answer.error_code != 0
        or answer.high_watermark != target.told_high_watermark
        or answer.log_start_offset != target.told_log_start_offset
    )


class FetchSessionCache:
    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        """`new_id` draws a random positive int32."""
        self._slots = slots
        self._new_id = new_id
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
            self._sessions.pop(session_id, None)
            opens = epoch == INITIAL_EPOCH and bool(targets)
            return FetchContext(self, targets, opens=opens, uses_topic_ids=uses_topic_ids, is_follower=is_follower)
        session = self._sessions.get(session_id)
        if session is None or session.is_follower != is_follower:
            return FetchContext(self, (), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(self, (), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(self, (), error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(targets, forgotten)
        if not session.targets:
            del self._sessions[session_id]
            return FetchContext(self, ())
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchContext(self, list(session.targets.values()), session=session)

    def create(
        self, targets: Sequence[FetchTarget], *, uses_topic_ids: bool, is_follower: bool, now_ms: int
    ) -> FetchSession | None:
        session = FetchSession(0, uses_topic_ids=uses_topic_ids, is_follower=is_follower, now_ms=now_ms)
        session.update(targets, ())
        if len(self._sessions) >= self._slots and not self._evict_for(session, now_ms):
            return None
        session.id = self._new_id()
        while session.id in self._sessions or session.id == NO_SESSION:
            session.id = self._new_id()
        self._sessions[session.id] = session
        return session

    def _evict_for(self, newcomer: FetchSession, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
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
        del self._sessions[cheapest.id]
        return True
