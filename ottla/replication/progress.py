"""How far a follower has come, as its leader sees it from the fetches that arrive (§14.1)."""

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
# Earlier than any moment that a clock can tell.
NEVER_MS = -(2**62)


class ReplicaProgress:
    """One follower of one leader, in one term of it."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, *, caught_up_ms: int = NEVER_MS) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.leader_end_at_last_fetch = UNKNOWN_OFFSET
        self.last_caught_up_ms = caught_up_ms
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def __repr__(self) -> str:
        return f"<ReplicaProgress [{self.log_start_offset}, {self.log_end_offset})>"

    def note_fetch(
        self, fetch_offset: int, log_start_offset: int, broker_epoch: int, *, leader_end_offset: int, now_ms: int
    ) -> None:
        """The follower has all records below `fetch_offset`; `leader_end_offset` is the leader's before it read."""
        # A follower that reaches the leader's end as it was at the fetch before counts as caught up then. Otherwise a
        # steady trickle of small batches would keep it out of the ISR for ever.
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """§14.1.3"""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max
