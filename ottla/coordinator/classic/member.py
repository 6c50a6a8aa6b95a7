"""One member of a classic group, and what the log keeps of it."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.coordinator.classic.causes import SessionTimer
from ottla.coordinator.records import StoredMember
from ottla.protocol.primitives import Buffer

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata), in the member's order of preference."""

NOT_ARMED: Final = 2**63


@dataclass(slots=True, eq=False)
class Member:
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    timer_key: SessionTimer
    assignment: bytes = b""

    # Tokens of requests that wait. Invariant: parked joins exist only in PREPARING_REBALANCE, parked syncs only in
    # COMPLETING_REBALANCE. Only `ClassicGroup` assigns `parked_join`, because it counts them.
    parked_join: int | None = None
    parked_sync: int | None = None

    is_new: bool = False
    """Added in the join phase that is running: it may not know its own id yet, so nothing proves it alive."""

    # A heartbeat moves only `session_deadline_ms`. The timer stays armed where it was, and sets itself again when it
    # fires before the session is over: one timer per session timeout instead of one per heartbeat.
    session_deadline_ms: int = 0
    armed_ms: int = NOT_ARMED

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        return self.parked_join is not None or self.parked_sync is not None

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Each name once, in order of preference."""
        return tuple(dict.fromkeys(name for name, _ in self.protocols))

    def metadata_for(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def stored(self, protocol_name: str | None, assignment: Buffer) -> StoredMember:
        """What the log says about it."""
        return StoredMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol_name),
            assignment=assignment,
        )


def restore_member(group_id: str, protocol_name: str | None, stored: StoredMember) -> Member:
    """The log has only the protocol that was chosen."""
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=((protocol_name or "", stored.subscription),),
        timer_key=SessionTimer(group_id, stored.member_id),
        assignment=bytes(stored.assignment),
    )
