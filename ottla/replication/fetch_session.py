"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches and what it was sent last.

    client                                 broker
    id 0, epoch 0, all partitions     →    opens a session, answers with its id
    id n, epoch 1, what has changed   →    answers only with partitions that have changed
    id n, epoch 2, …
    id n, epoch -1, all partitions    →    closes it

A request that misses the expected epoch was lost or repeated on the way; it is refused, and the client opens a new
session. A client that gets no session is answered with id 0 and keeps sending all its partitions.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from ottla.protocol.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.replica_progress import PartitionKey

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
NEVER_SENT = -1
# What a session keeps for a partition, about, besides the topic's name: the target, its key and numbers, its place.
TARGET_BYTES = 400


class FetchTarget:
    """A partition a client fetches, from where, and in a session what it was sent of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "last_sent_high_watermark",
        "last_sent_log_start_offset",
        "log_start_offset",
        "max_bytes",
        "partition",
        "source",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
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
        self.last_sent_high_watermark = NEVER_SENT
        self.last_sent_log_start_offset = NEVER_SENT
        # The partition that the session watches; only followers' sessions watch theirs.
        self.source: Partition | None = None

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory; always the same."""
        return TARGET_BYTES + len(self.key[0])

    @property
    def known_log_start_offset(self) -> int:
        """The leader's as a follower knows it. One that has no session was sent nothing yet: then its own counts, or no
        fetch of it would ever wait."""
        if self.last_sent_log_start_offset == NEVER_SENT:
            return self.log_start_offset
        return self.last_sent_log_start_offset

    def update(self, newer: "FetchTarget") -> None:
        """Fetch from where the client says now."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset


class PartitionResult(Protocol):
    """What a session needs to know of one partition of a fetch response."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    records: Any
    diverging_epoch: Any
    preferred_read_replica: int


class FetchSession:
    __slots__ = (
        "connection",
        "created_ms",
        "epoch",
        "id",
        "is_follower",
        "last_used_ms",
        "owner",
        "size_bytes",
        "targets",
        "uses_topic_ids",
    )

    def __init__(self) -> None:
        # NO_SESSION until the cache has taken it in.
        self.id = NO_SESSION
        # The epoch the next request must carry.
        self.epoch = 1
        self.uses_topic_ids = False
        self.is_follower = False
        self.created_ms = 0
        self.last_used_ms = 0
        # The one that its last request came by; None when that is gone, or has another session.
        self.connection: Hashable | None = None
        # Who has opened it, and may go on with it.
        self.owner: Hashable = None
        self.size_bytes = 0
        # In the order in which they are served.
        self.targets: dict[PartitionKey, FetchTarget] = {}

    def begin(self, *, owner: Hashable, uses_topic_ids: bool, is_follower: bool, now_ms: int) -> None:
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.created_ms = self.last_used_ms = now_ms

    def update(self, targets: Iterable[FetchTarget], forgotten: Iterable[PartitionKey]) -> None:
        for target in targets:
            known = self.targets.setdefault(target.key, target)
            if known is target:
                self.size_bytes += target.size_bytes
            else:
                known.update(target)
            self.on_listed(known)
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None:
                self.size_bytes -= gone.size_bytes
                self.on_forgotten(gone)

    def on_listed(self, target: FetchTarget) -> None:
        """The client has named it: it is new, or fetched from somewhere else."""

    def on_forgotten(self, target: FetchTarget) -> None:
        """The client does without it from now on."""

    def targets_to_check(self) -> list[FetchTarget]:
        """What may have changed since the last answer."""
        return list(self.targets.values())

    def mark_sent(self, target: FetchTarget, answer: PartitionResult) -> None:
        """The answer leaves now. After data has been sent a partition goes to the back."""
        if answer.records and self.targets.pop(target.key, None) is not None:
            self.targets[target.key] = target

    def send_again(self, topic: bytes | str, partition: int) -> None:
        """What was sent of the partition last did not reach the client: `topic` is the id or the name, as the session
        has it."""
        target = self.targets.get((topic, partition))
        if target is not None:
            target.last_sent_high_watermark = NEVER_SENT

    def close(self) -> None:
        """No request can use it any more."""

    def worth(self) -> tuple[bool, int]:
        """Followers' sessions before consumers', larger before smaller."""
        return self.is_follower, len(self.targets)


class SessionSlots(Protocol):
    def admit(self, session: FetchSession, connection: Hashable, now_ms: int) -> None:
        """Give a new session an id, if it can be kept."""
        ...


class FetchContext:
    """One fetch request in the light of its session.

    `targets` is what to look at, and `session` the session, which for the first fetch of one is not in the cache yet;
    None for a consumer's fetch without one. End with `answered` or `abandon`."""

    __slots__ = ("_cache", "_next_epoch", "_opens_for", "error", "is_incremental", "session", "targets")

    def __init__(
        self,
        cache: "SessionSlots",
        targets: Sequence[FetchTarget],
        *,
        session: FetchSession | None = None,
        is_incremental: bool = False,
        opens_for: Hashable | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        """`opens_for`: the session is new, and the cache takes it in for this connection; None: it is in the cache,
        or is to have no place there."""
        self.targets = targets
        self.session = session
        self.error = error
        self.is_incremental = is_incremental
        self._cache = cache
        self._opens_for = opens_for
        self._next_epoch = INITIAL_EPOCH if session is None else session.epoch

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    @property
    def is_overtaken(self) -> bool:
        """Whether another request of the session has come since."""
        return self.is_incremental and self.session is not None and self.session.epoch != self._next_epoch

    def refresh_targets(self) -> None:
        """The request has waited; other partitions may have changed since."""
        if self.is_incremental and self.session is not None:
            self.targets = self.session.targets_to_check()

    def answered(self, answers: Sequence[PartitionResult], now_ms: int) -> list[bool]:
        """Which of the answers, one per target, to send. Call it for what is really sent: the session remembers it."""
        session = self.session
        if session is None:
            return [True] * len(answers)
        if self._opens_for is not None:
            self._cache.admit(session, self._opens_for, now_ms)
        included: list[bool] = []
        for target, answer in zip(self.targets, answers, strict=True):
            included.append(not self.is_incremental or _has_changed(target, answer))
            target.last_sent_high_watermark = answer.high_watermark
            target.last_sent_log_start_offset = answer.log_start_offset
            if answer.error_code or answer.diverging_epoch is not None:
                # No client takes a high watermark from such an answer: the next one without an error sends it again.
                target.last_sent_high_watermark = NEVER_SENT
            session.mark_sent(target, answer)
        self._close_if_unknown(session)
        return included

    def abandon(self) -> None:
        """The client is gone, or waits no more."""
        if self.session is not None:
            self._close_if_unknown(self.session)

    def _close_if_unknown(self, session: FetchSession) -> None:
        if session.id == NO_SESSION:
            session.close()


def _has_changed(target: FetchTarget, answer: PartitionResult) -> bool:
    return (
        bool(answer.records)
        or answer.diverging_epoch is not None
        or answer.error_code != 0
        or answer.preferred_read_replica >= 0
        or answer.high_watermark != target.last_sent_high_watermark
        or answer.log_start_offset != target.last_sent_log_start_offset
    )
