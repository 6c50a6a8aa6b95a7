"""The sessions of living clients when broker time is moved.

A client that runs in real time cannot heartbeat within a jump. So the deadlines of a member whose connection is open
are moved with the time, as though it had heartbeated all along; those of a member without a connection end. The same
holds for a join phase and a wait for assignments while a living member has yet to send its request. Its timer goes on
from the deadline that was moved, so that a client that dies is found.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla.broker.assembly import Parts
from ottla.coordinator.classic.causes import JoinPhaseTimer, PendingSyncTimer, SessionTimer

if TYPE_CHECKING:
    from ottla.coordinator.classic.group import ClassicGroup
    from ottla.coordinator.classic.member import Member

SPARE: Final = "spare"
EXPIRE: Final = "expire"

Sessions: TypeAlias = str | Collection[str]
"""`spare`, `expire`, or the member ids and client ids of those that expire."""


class Connected(Protocol):
    def is_connected(self, group_id: str, member_id: str, client_id: str) -> bool:
        """Whether a connection is open that has carried requests of the member."""
        ...


def checked_sessions(sessions: Sessions) -> Sessions:
    """Raises ValueError."""
    if isinstance(sessions, str) and sessions not in (SPARE, EXPIRE):
        raise ValueError(f"sessions={sessions!r}: expected spare, expire, or a set of member ids or client ids")
    return sessions


class SessionPolicy:
    """Of one jump in time, from `begin_ms` to `target_ms`."""

    def __init__(
        self,
        sessions: Sessions,
        parts: Mapping[int, Parts],
        connected: Connected,
        begin_ms: int,
        target_ms: int,
        *,
        stretch: float = 1.0,
    ) -> None:
        """`stretch`: how many times longer than its timeout a deadline is that was moved."""
        self._sessions = sessions
        self._parts = parts
        self._connected = connected
        self._begin_ms = begin_ms
        self._target_ms = target_ms
        self._stretch = stretch
        # The deadlines that were moved.
        self._moved: dict[Any, int] = {}

    def spare(self, node_id: int, key: Any) -> bool:
        """Moves the deadline that has come if it is a living client's; its timer, which is still to be run, finds that
        and is set again."""
        group = self._group_of(node_id, key)
        return group is not None and self._spare(group, key)

    def spares(self, node_id: int, key: Any) -> bool:
        """Whether it would."""
        group = self._group_of(node_id, key)
        return group is not None and any(self._is_spared(group, member) for member in waited_for(group, key))

    def end(self, now_ms: int) -> None:
        """Moves the deadlines of living clients that the walk has not come to. It may have ended before its target:
        then those that were moved for all of the jump come back by the rest."""
        rest_ms, self._target_ms = self._target_ms - now_ms, now_ms
        for parts in self._parts.values():
            for shard in parts.group_loader.loaded_shards():
                for group in shard.groups.values():
                    for key in deadline_keys(group):
                        found = deadline_of(group, key)
                        if found is not None and self._moved.get(key) == found[0]:
                            set_deadline(group, key, found[0] - rest_ms)
                        else:
                            self._spare(group, key)

    def _group_of(self, node_id: int, key: Any) -> "ClassicGroup | None":
        if self._sessions == EXPIRE or not isinstance(key, SessionTimer | JoinPhaseTimer | PendingSyncTimer):
            return None
        shards = self._parts[node_id].group_loader.loaded_shards()
        return next((shard.groups[key.group_id] for shard in shards if key.group_id in shard.groups), None)

    def _spare(self, group: "ClassicGroup", key: Any) -> bool:
        found = deadline_of(group, key)
        if found is None or self._moved.get(key) == found[0]:
            return False
        if not any(self._is_spared(group, member) for member in waited_for(group, key)):
            return False
        deadline_ms, timeout_ms = found
        # One that began during the jump is moved by the rest of it.
        moved_ms = deadline_ms + self._target_ms - max(self._begin_ms, deadline_ms - timeout_ms)
        moved_ms += round(timeout_ms * (self._stretch - 1))
        self._moved[key] = moved_ms
        set_deadline(group, key, moved_ms)
        return True

    def _is_spared(self, group: "ClassicGroup", member: "Member") -> bool:
        if self._sessions == EXPIRE:
            return False
        if self._sessions != SPARE and (member.member_id in self._sessions or member.client_id in self._sessions):
            return False
        return self._connected.is_connected(group.group_id, member.member_id, member.client_id)


# The deadlines of a group.


def deadline_keys(group: "ClassicGroup") -> Iterator[Any]:
    """Of those that living clients can be spared from."""
    yield from (member.timer_key for member in group.members.values())
    if group.join_phase is not None:
        yield JoinPhaseTimer(group.group_id)
    if group.pending_sync_deadline_ms is not None:
        yield PendingSyncTimer(group.group_id)


def waited_for(group: "ClassicGroup", key: Any) -> list["Member"]:
    """The members whose request a timer waits for."""
    match key:
        case SessionTimer(_, member_id):
            members = [group.members.get(member_id)]
        case JoinPhaseTimer():
            members = [member for member in group.members.values() if member.parked_join is None]
        case _:
            members = [group.members.get(member_id) for member_id in group.pending_sync]
    return [member for member in members if member is not None]


def deadline_of(group: "ClassicGroup", key: Any) -> tuple[int, int] | None:
    """The deadline and the timeout that it came from, in ms; None where there is none any more."""
    match key:
        case SessionTimer(_, member_id):
            member = group.members.get(member_id)
            return None if member is None else (member.session_deadline_ms, member.session_timeout_ms)
        case JoinPhaseTimer():
            phase = group.join_phase
            return None if phase is None else (phase.deadline_ms, phase.deadline_ms - phase.started_ms)
        case _:
            deadline_ms = group.pending_sync_deadline_ms
            return None if deadline_ms is None else (deadline_ms, group.rebalance_timeout_ms)


def set_deadline(group: "ClassicGroup", key: Any, deadline_ms: int) -> None:
    match key:
        case SessionTimer(_, member_id):
            group.members[member_id].session_deadline_ms = deadline_ms
        case JoinPhaseTimer():
            assert group.join_phase is not None, "a deadline was found"
            group.join_phase.deadline_ms = deadline_ms
        case _:
            group.pending_sync_deadline_ms = deadline_ms
