"""The fetching side of an incremental fetch session (KIP-227): what the leader already knows is not sent again.

A full request lists everything and asks for a session; incremental ones list what changed and forget what went. After
any doubt about what the leader knows, a lost response or an error, the next request is full.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from ottla.replication.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from ottla.replication.replica_follower import FetchPosition, ReplicaFollower

FollowerKey: TypeAlias = tuple[bytes, int]
"""Topic id and partition: between brokers, names are not enough."""


class FetchState(NamedTuple):
    """From where a partition is fetched, and for which follower."""

    follower: ReplicaFollower
    position: FetchPosition


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    listed: dict[FollowerKey, FetchState]
    forgotten: list[FollowerKey]

    @property
    def is_full(self) -> bool:
        return self.epoch == INITIAL_EPOCH


class FetchSessionHandler:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # What the leader serves in this session: as it was listed last.
        self.sent: dict[FollowerKey, FetchState] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request has to list all partitions."""
        return self._epoch == INITIAL_EPOCH

    def request(self, wanted: dict[FollowerKey, FetchState], unwanted: Iterable[FollowerKey] = ()) -> SessionRequest:
        """`wanted` is everything for a full request, else what may have changed; `unwanted` what is not fetched now."""
        if self.is_full:
            self.sent = dict(wanted)
            return SessionRequest(self._id, self._epoch, wanted, [])
        listed = {key: state for key, state in wanted.items() if self.sent.get(key) != state}
        self.sent |= listed
        forgotten = [key for key in unwanted if self.sent.pop(key, None) is not None]
        return SessionRequest(self._id, self._epoch, listed, forgotten)

    def succeeded(self, session_id: int) -> None:
        """A request of this session succeeded."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._id, self._epoch = session_id, 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def start_over(self, *, close: bool = True) -> None:
        """The next request is full; it closes the old session if the leader may still have it."""
        self._id = self._id if close else NO_SESSION
        self._epoch = INITIAL_EPOCH
