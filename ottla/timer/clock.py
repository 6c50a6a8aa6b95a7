"""The clocks of a broker, as an interface; the shell and the simulator hand them in. And what a timer is for, and so by
which of a broker's two times it goes.

*Transport time* is the machine's: it bounds what waits for the network, a disk or another broker. *Broker time* is what
groups, transactions, retention and every timestamp go by. In production both are one clock and one wheel, and a kind is
only a name. The testing kit gives a broker a second clock and a second wheel, which a test can stop and move
(docs/broker-time.md).
"""

from enum import StrEnum
from typing import Final, Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds from an arbitrary start: the only clock for deadlines, sessions and timers."""
        ...

    def now_ns(self) -> int:
        """The same clock in nanoseconds, to measure durations."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch: for timestamps that people or other programs read, never for deadlines."""
        ...


class LoginClock(Protocol):
    """By which tokens and the sessions of logins end: transport time, or broker time where a test says so."""

    def now_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def transport_ms(self, deadline_ms: int) -> int:
        """The moment of transport time at which a deadline of this clock comes, as time runs now."""
        ...


class TimerKind(StrEnum):
    """All but TRANSPORT are kinds of broker time; those of REPLICATION only where a test says so."""

    TRANSPORT = "transport"
    SESSION = "session"
    PENDING_MEMBER = "pending-member"
    JOIN = "join"
    SYNC = "sync"
    TRANSACTION_TIMEOUT = "transaction-timeout"
    TRANSACTIONAL_ID_EXPIRY = "transactional-id-expiry"
    OFFSETS_EXPIRY = "offsets-expiry"
    PRODUCER_EXPIRY = "producer-expiry"
    RETENTION = "retention"
    COMPACTION = "compaction"
    FILE_DELETION = "file-deletion"
    QUOTA_EXPIRY = "quota-expiry"
    REPLICA_LAG = "replica-lag"
    LEADER_BALANCE = "leader-balance"


REPLICATION: Final = (TimerKind.REPLICA_LAG, TimerKind.LEADER_BALANCE)
"""Jobs that judge what goes by transport time: the fetches of followers, and which brokers have come back."""
PERIODIC: Final = (
    TimerKind.TRANSACTION_TIMEOUT,
    TimerKind.TRANSACTIONAL_ID_EXPIRY,
    TimerKind.OFFSETS_EXPIRY,
    TimerKind.PRODUCER_EXPIRY,
    TimerKind.RETENTION,
    TimerKind.COMPACTION,
    TimerKind.FILE_DELETION,
    TimerKind.QUOTA_EXPIRY,
    *REPLICATION,
)
"""Jobs that look, again and again, for what has come to an end, in an order in which none leaves work to an earlier
one: retention schedules files that the deletion removes."""
