"""What the tests of the suite ask of a client library, in the same words for each."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

WITHIN_S = float(os.environ["OTTLA_SUITE_WITHIN_S"])
"""Whatever a client waits for: a loaded machine is no reason to fail."""
POLL_MS = 50
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True)
class Sent:
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """None leaves it to the library."""
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, order=True)
class Read:
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str = field(default="", compare=False)


Placed = tuple[int, int]
"""Partition and offset of a record that was acknowledged."""


@dataclass
class Follower:
    """What a member of a group that polls in a thread has seen."""

    assigned: frozenset[int] = frozenset()
    reads: list[Read] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


class Library(Protocol):
    """Each method opens clients, does one thing, and closes them. What fails raises the library's own error."""

    def send(
        self, topic: str, records: Sequence[Sent], *, idempotent: bool = False, compression: str = "none"
    ) -> list[Placed]: ...

    def consume(
        self,
        topics: Sequence[str],
        group: str,
        count: int,
        *,
        commits: bool = True,
        isolation: str = READ_UNCOMMITTED,
    ) -> list[Read]:
        """As a member of the group, exactly so many records, in the order in which they came."""
        ...

    def read(
        self, topic: str, partition: int, start: int, count: int, *, isolation: str = READ_UNCOMMITTED
    ) -> list[Read]:
        """Without a group, from an offset on."""
        ...

    def follow(self, topic: str, group: str, follower: Follower) -> None:
        """Polls as a member of the group until it is over."""
        ...

    def committed(self, topic: str, group: str, partition: int) -> int | None: ...

    def commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None: ...

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset, and the one behind the last."""
        ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Of the first record that is no older."""
        ...

    def transact(
        self,
        transactional_id: str,
        topic: str,
        records: Sequence[Sent],
        *,
        commits: bool,
        read: tuple[str, str, Mapping[int, int]] | None = None,
    ) -> None:
        """One transaction; `read` is a group, a topic, and offsets that are committed with it."""
        ...

    def grow(self, topic: str, partitions: int) -> None: ...

    def partitions(self, topic: str) -> int:
        """How many there are by the metadata; 0 where the topic is unknown."""
        ...

    def delete_records(self, topic: str, partition: int, before: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...
