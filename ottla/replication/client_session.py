"""The fetching side of an incremental fetch session (KIP-227): what the leader already knows need not be said again.

A full request lists everything and asks for a session; incremental ones list what changed and forget what went. Any
doubt about what the leader knows, a lost answer or an error, is settled by a new full request.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from ottla.replication.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from ottla.replication.follower import FetchPosition, Follower

FollowerKey: TypeAlias = tuple[bytes, int]
"""Topic id and partition: between brokers, names are not enough."""


class Asked(NamedTuple):
    """A question as it was sent."""

    follower: Follower
    position: FetchPosition


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    listed: dict[FollowerKey, Asked]
    forgotten: list[FollowerKey]

    @property
    def is_full(self) -> bool:
        return self.epoch == INITIAL_EPOCH


class ClientSession:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # What the leader fetches for us, as it was told.
        self.told: dict[FollowerKey, Asked] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request has to list all partitions."""
        return self._epoch == INITIAL_EPOCH

    def request(self, wanted: dict[FollowerKey, Asked], unwanted: Iterable[FollowerKey] = ()) -> SessionRequest:
        """`wanted` is everything for a full request, else what may have changed; `unwanted` what is not fetched now."""
        if self.is_full:
            self.told = dict(wanted)
            return SessionRequest(self._id, self._epoch, wanted, [])
        listed = {key: asked for key, asked in wanted.items() if self.told.get(key) != asked}
        self.told |= listed
        forgotten = [key for key in unwanted if self.told.pop(key, None) is not None]
        return SessionRequest(self._id, self._epoch, listed, forgotten)

    def answered(self, session_id: int) -> None:
        """A request of this session succeeded."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._id, self._epoch = session_id, 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def start_over(self, *, close: bool = True) -> None:
        """The next request is full; it closes the old session if the leader may still have it."""
        self._id = self._id if close else NO_SESSION
        self._epoch = INITIAL_EPOCH
