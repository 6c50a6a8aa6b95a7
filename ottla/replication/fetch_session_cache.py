"""The fetch sessions (KIP-227) that a broker keeps, and which of them gives way to another.

When all slots are taken, a session that has lost its connection gives way, then one that was not used for
`EVICTION_MS`, then the one that is worth least. Kafka bounds the number of sessions alone; here the partitions of
consumers' sessions have a bound too, for a client may name any number of them, whether they exist or not. A client
whose session does not fit gets none, or loses it, and goes on with full requests.

A client may resume its session on another connection, so a session outlives its connection, but only for `DETACHED_MS`.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

from ottla.protocol.errors import ErrorCode
from ottla.replication.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSession,
    FetchTarget,
)
from ottla.replication.replica_progress import PartitionKey

EVICTION_MS = 120_000
# Longer than any client takes to reconnect with a session that it has not given up.
DETACHED_MS = EVICTION_MS
# Some 120,000 partitions in sessions of consumers. One of them may have a quarter, that is 30,000.
CONSUMERS_BYTES_MAX = 48 << 20
SESSION_BYTES_MAX = CONSUMERS_BYTES_MAX // 4


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
        # About what the sessions of consumers take in memory.
        self.consumers_bytes = 0
        self._of_connection: dict[Hashable, FetchSession] = {}
        # Sessions without a connection and since when, the longest first.
        self._detached: dict[FetchSession, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, session_id: int) -> FetchSession | None:
        """The one that has this id, if it is kept."""
        return self._sessions.get(session_id)

    def begin(
        self,
        session_id: int,
        epoch: int,
        targets: Sequence[FetchTarget],
        forgotten: Iterable[PartitionKey],
        connection: Hashable,
        owner: Hashable,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: int,
    ) -> FetchContext:
        """What the request fetches: its own partitions, or those of its session as it changes them.

        `owner` is who sends it. A session of another is as one that there is not: its refusals would name what the
        other fetches, and numbers can be guessed."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner != owner:
            session = None
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(session)
            return self._begin_full(epoch, targets, connection, owner, uses_topic_ids, is_follower, now_ms)
        if session is None or session.is_follower != is_follower:
            return FetchContext(self, (), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(self, (), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(self, (), error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        size_before = session.size_bytes
        session.update(targets, forgotten)
        if not session.is_follower:
            self.consumers_bytes += session.size_bytes - size_before
        if not session.targets:
            # As in Kafka, what it named is fetched, though it forgot all of that too.
            self._drop(session)
            return self._begin_full(FINAL_EPOCH, targets, connection, owner, uses_topic_ids, is_follower, now_ms)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        if session.connection is not connection:
            self._attach(session, connection, now_ms)
        if session.size_bytes > size_before and not self._has_room(session, 0, now_ms):
            # This request is served; the next one learns that the session is gone.
            self._drop(session)
        return FetchContext(self, session.targets_to_check(), session=session, is_incremental=True)

    def _begin_full(
        self,
        epoch: int,
        targets: Sequence[FetchTarget],
        connection: Hashable,
        owner: Hashable,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: int,
    ) -> FetchContext:
        opens = epoch == INITIAL_EPOCH
        if not opens and not is_follower:
            return FetchContext(self, targets)
        session = self._new_follower_session() if is_follower else FetchSession()
        session.begin(owner=owner, uses_topic_ids=uses_topic_ids, is_follower=is_follower, now_ms=now_ms)
        session.update(targets, ())
        return FetchContext(self, targets, session=session, opens_for=connection if opens else None)

    def admit(self, session: FetchSession, connection: Hashable, now_ms: int) -> None:
        """Give the session an id, unless it is too large or all slots are taken by others that are worth more."""
        if not self._has_room(session, session.size_bytes, now_ms):
            return
        if len(self._sessions) >= self._slots and not self._evict_for(session, now_ms):
            return
        session.id = self._new_id()
        while session.id in self._sessions or session.id == NO_SESSION:
            session.id = self._new_id()
        self._sessions[session.id] = session
        if not session.is_follower:
            self.consumers_bytes += session.size_bytes
        self._attach(session, connection, now_ms)

    # Connections.

    def connection_lost(self, connection: Hashable, now_ms: int) -> bool:
        """Its session is kept for `DETACHED_MS`; says whether it had one. Call `drop_detached` later."""
        session = self._of_connection.get(connection)
        if session is not None:
            self._detach(session, now_ms)
        return session is not None

    def drop_detached(self, now_ms: int) -> int | None:
        """Drops the sessions that were without a connection for too long; gives when to do so again, if ever."""
        for session, since_ms in list(self._detached.items()):
            if now_ms < since_ms + DETACHED_MS:
                return since_ms + DETACHED_MS
            self._drop(session)
        return None

    def _attach(self, session: FetchSession, connection: Hashable, now_ms: int) -> None:
        replaced = self._of_connection.get(connection)
        if replaced is not None:
            self._detach(replaced, now_ms)
        if session.connection is not None:
            del self._of_connection[session.connection]
        self._detached.pop(session, None)
        session.connection = connection
        self._of_connection[connection] = session

    def _detach(self, session: FetchSession, now_ms: int) -> None:
        self._of_connection.pop(session.connection)
        session.connection = None
        self._detached[session] = now_ms

    # Giving way.

    def _drop(self, session: FetchSession | None) -> None:
        if session is None:
            return
        del self._sessions[session.id]
        if not session.is_follower:
            self.consumers_bytes -= session.size_bytes
        self._detached.pop(session, None)
        if session.connection is not None:
            del self._of_connection[session.connection]
            session.connection = None
        session.close()

    def _has_room(self, session: FetchSession, more_bytes: int, now_ms: int) -> bool:
        """Whether there is memory for so much more of the session, which others may have to leave."""
        if session.is_follower:
            return True
        if session.size_bytes > SESSION_BYTES_MAX:
            return False
        while self.consumers_bytes + more_bytes > CONSUMERS_BYTES_MAX:
            useless = self._detached_consumer() or self._unused_consumer(now_ms)
            if useless is None:
                return False
            self._drop(useless)
        return True

    def _detached_consumer(self) -> FetchSession | None:
        return next((session for session in self._detached if not session.is_follower), None)

    def _unused_consumer(self, now_ms: int) -> FetchSession | None:
        oldest = next((session for session in self._sessions.values() if not session.is_follower), None)
        return oldest if oldest is not None and now_ms - oldest.last_used_ms > EVICTION_MS else None

    def _evict_for(self, newcomer: FetchSession, now_ms: int) -> bool:
        if not self._sessions:
            return False
        detached = self._detached_consumer()
        oldest = next(iter(self._sessions.values())) if detached is None else detached
        if detached is not None or now_ms - oldest.last_used_ms > EVICTION_MS:
            self._drop(oldest)
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
        self._drop(cheapest)
        return True
