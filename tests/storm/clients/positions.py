"""A group member's place in each partition: how far it has read, what of that it has committed, as a history."""

import itertools
from collections.abc import Mapping

from tests.histories.events import NONE_COMMITTED, CommitAcknowledged, CommitRead, CommitSent, Read
from tests.histories.files import now_us
from tests.storm.clients.client import Client, to_value
from tests.storm.settings import GROUP, TOPIC


class Positions:
    """Reading a partition begins where the group's commit says, each time it is assigned."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # A program that takes the place of one that hung has others.
        self._numbers = itertools.count(now_us())
        self._sessions: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def begin(self, partition: int, offset: int, commit_id: str, asked_us: int) -> int:
        """The group's commit as it was read, offset -1 for none; returns where to read from."""
        self._client.history.write(CommitRead(asked_us, now_us(), GROUP, TOPIC, partition, offset, commit_id))
        start = 0 if offset == NONE_COMMITTED else offset
        self._sessions[partition] = next(self._numbers)
        self._next[partition] = self._committed[partition] = start
        return start

    def forget(self, partition: int) -> None:
        for known in (self._sessions, self._next, self._committed):
            known.pop(partition, None)

    def read(self, partition: int, offset: int, payload: bytes) -> None:
        session = self._sessions[partition]
        value = to_value(payload)
        self._client.history.write(Read(now_us(), self._client.name, session, TOPIC, partition, offset, value))
        self._next[partition] = offset + 1

    def begin_commit(self) -> dict[int, tuple[int, str]]:
        """What is to be committed now: offset and commit id by partition."""
        commits: dict[int, tuple[int, str]] = {}
        for partition, offset in self._next.items():
            if offset > self._committed[partition]:
                commits[partition] = offset, f"{self._client.name}/{next(self._numbers)}"
        for partition, (offset, commit_id) in commits.items():
            self._client.history.write(CommitSent(now_us(), GROUP, TOPIC, partition, offset, commit_id))
        return commits

    def committed(self, commits: Mapping[int, tuple[int, str]]) -> None:
        for partition, (offset, commit_id) in commits.items():
            self._client.history.write(CommitAcknowledged(now_us(), commit_id))
            if partition in self._committed:
                self._committed[partition] = offset
