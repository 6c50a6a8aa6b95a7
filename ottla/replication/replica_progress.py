"""What a leader keeps of its followers: how far each has come (§14.1), which of their sessions watch a partition."""

from typing import Any, Protocol, TypeAlias

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic name (up to Fetch v12) or topic id (from v13), and partition."""

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
# Earlier than any moment of a clock.
NEVER_MS = -(2**62)


class Contact:
    """When a follower last fetched all the partitions of a session, unchanged ones included."""

    __slots__ = ("last_fetch_ms",)

    def __init__(self) -> None:
        self.last_fetch_ms = NEVER_MS


class ReplicaProgress:
    """One follower of one leader, in one term of it.

    A follower that is at the leader's end and was sent everything asks for the partition again and again without
    naming it. Looking at each such partition at each fetch would cost what the session saves; the moments of those
    fetches are those of the session's `contact`, as long as nothing happens in the partition."""

    __slots__ = (
        "_caught_up_ms",
        "_contact",
        "_fetch_ms",
        "broker_epoch",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, *, caught_up_ms: int = NEVER_MS) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.leader_end_at_last_fetch = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self._fetch_ms = NEVER_MS
        self._caught_up_ms = caught_up_ms
        # Invariant: if there is one, the follower was at the leader's end at each of its fetches since the last that
        # was noted here.
        self._contact: Contact | None = None

    @property
    def last_fetch_ms(self) -> int:
        return self._fetch_ms if self._contact is None else max(self._fetch_ms, self._contact.last_fetch_ms)

    @property
    def last_caught_up_ms(self) -> int:
        return self._caught_up_ms if self._contact is None else max(self._caught_up_ms, self._contact.last_fetch_ms)

    def __repr__(self) -> str:
        return f"<ReplicaProgress [{self.log_start_offset}, {self.log_end_offset})>"

    def note_fetch(
        self,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        *,
        leader_end_offset: int,
        now_ms: int,
        contact: Contact | None = None,
    ) -> None:
        """The follower has all records below `fetch_offset`; `leader_end_offset` is the leader's before it read.

        A caller that gives a `contact`, that of the session, notes the next fetch after anything has happened in the
        partition; it may pass over those before."""
        if self._contact is not None:
            self.leave_contact()
        # A follower that reaches the leader's end as it was at the fetch before counts as caught up then. Otherwise a
        # steady trickle of small batches would keep it out of the ISR for ever.
        if fetch_offset >= leader_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
            self._contact = contact
        elif fetch_offset >= self.leader_end_at_last_fetch:
            self._caught_up_ms = max(self._caught_up_ms, self._fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = leader_end_offset
        self._fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def fall_behind(self) -> None:
        """It was in sync, and has gone of its own will or by the controller's."""
        self.leave_contact()
        self._caught_up_ms = NEVER_MS

    def is_seen_by(self, contact: Contact) -> bool:
        """Whether the fetches of this session count, unchanged ones included."""
        return self._contact is contact

    def leave_contact(self) -> None:
        """The session ends or does without the partition: from now on only noted fetches count."""
        if self._contact is not None:
            self._fetch_ms, self._caught_up_ms = self.last_fetch_ms, self.last_caught_up_ms
            self._contact = None

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """§14.1.3"""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max


class WatchingSession(Protocol):
    """A fetch session of a follower; its targets by their keys."""

    dirty: dict[PartitionKey, Any]
    changed: dict[PartitionKey, Any]


class WatchingSessions:
    """The sessions that followers fetch a partition in, and as which target of theirs."""

    __slots__ = ("targets",)

    def __init__(self) -> None:
        self.targets: dict[WatchingSession, Any] = {}

    def mark_dirty(self) -> None:
        """Something differs from what followers may have been sent: their next fetch looks at the partition."""
        for session, target in self.targets.items():
            session.dirty[target.key] = target
