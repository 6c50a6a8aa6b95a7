"""What the requests of an episode are about, and the names that both brokers' ids share in it."""

import hashlib
import random
import re
from collections.abc import Callable
from typing import Any

from ottla.protocol.schema import Message, fields_of

OURS, THEIRS = 0, 1
# In the values that requests are drawn from, it stands for a name of the episode's own.
NOWHERE = "nowhere"
# Brokers make a member id of a client's id or of an instance's, and a random part.
_RANDOM_PART = re.compile(r"-[0-9A-Za-z_-]{8}-?[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_RANDOM_NUMBERS = ("session_id", "producer_id")
_PRODUCER_IDS = ("producer_id", "v3_and_below_producer_id", "producer_id_filters")


class Ids:
    """Both brokers' random ids, each pair under one shared name: requests are drawn with the names."""

    def __init__(self) -> None:
        self._real: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        self._shared: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        self._members: list[str] = []
        self._sessions: list[int] = []

    def topic_id(self, name: str) -> bytes:
        return hashlib.sha256(name.encode()).digest()[:16]

    def session(self, rng: random.Random) -> int:
        return rng.choice((0, *self._sessions))

    @property
    def members(self) -> list[str]:
        return self._members

    def learn(self, ours: Any, theirs: Any) -> None:
        """From two answers to one request."""
        for side, answer in enumerate((ours, theirs)):
            self._learn_topics(answer, side)
        for name in (*_RANDOM_NUMBERS, "member_id"):
            pair = getattr(ours, name, None), getattr(theirs, name, None)
            is_given = all(pair) or name in _PRODUCER_IDS
            if None not in pair and is_given and -1 not in pair and pair[OURS] not in self._shared[OURS]:
                self._learn_pair(name, *pair)

    def _learn_pair(self, name: str, ours: Any, theirs: Any) -> None:
        if theirs in self._shared[THEIRS]:
            return  # What follows from it is a difference.
        shared: Any
        if name == "member_id":
            shared = f"member-{len(self._members) + 1}"
            self._members.append(shared)
        elif name == "session_id":
            shared = 1_000_000 + len(self._sessions)
            self._sessions.append(shared)
        else:
            shared = 2_000_000 + len(self._shared[OURS])
        for side, real in enumerate((ours, theirs)):
            self._real[side][shared] = real
            self._shared[side][real] = shared

    def _learn_topics(self, message: Any, side: int) -> None:
        if isinstance(message, list):
            for each in message:
                self._learn_topics(each, side)
        elif isinstance(message, Message):
            topic_id = getattr(message, "topic_id", b"")
            name = getattr(message, "name", None) or getattr(message, "topic_name", None)
            if any(topic_id) and isinstance(name, str):
                shared = self.topic_id(name)
                self._real[side][shared] = topic_id
                self._shared[side][bytes(topic_id)] = shared
            for field in fields_of(type(message)):
                if field.struct is not None:
                    self._learn_topics(getattr(message, field.name), side)

    def records(self, producer_id: int, build: Callable[[int], bytes]) -> bytes:
        """A batch of the producer, which each broker gets with the id that it has given."""
        shared = build(producer_id)
        for real in self._real:
            real[shared] = build(real.get(producer_id, producer_id))
        return shared

    def for_broker(self, message: Any, side: int) -> Any:
        """A request as this broker has to get it."""
        return _mapped(message, lambda name, value: self._real_id(side, name, value))

    def _real_id(self, side: int, name: str, value: Any) -> Any:
        is_id = isinstance(value, str | bytes) or name in _RANDOM_NUMBERS or name in _PRODUCER_IDS
        return self._real[side].get(value, value) if is_id else value

    def shared(self, side: int, name: str, value: Any) -> Any:
        """A value of an answer as the other broker's answer should have it."""
        if isinstance(value, str):
            return self._shared[side].get(value) or _RANDOM_PART.sub("-random", value)
        if isinstance(value, bytes) or name in _RANDOM_NUMBERS:
            return self._shared[side].get(value, value)
        return value


def _mapped(value: Any, change: Any, name: str = "") -> Any:
    if isinstance(value, Message):
        fields = {
            field.name: _mapped(getattr(value, field.name), change, field.name) for field in fields_of(type(value))
        }
        return type(value)(**fields)
    if isinstance(value, list):
        return [_mapped(each, change, name) for each in value]
    return change(name, value)


class World:
    """The topics and groups of one episode. Other episodes have others, so that each can be repeated by itself."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.ids = Ids()
        self.topics = [f"{prefix}a", f"{prefix}b"]
        # The setup does not create it; a request may.
        self.nowhere = f"{prefix}{NOWHERE}"
        self.groups = [f"{prefix}group-{number}" for number in range(3)]
        self._created = 0

    def topic(self, rng: random.Random) -> str:
        return rng.choice(self.topics)

    def new_topic(self) -> str:
        """Now and then two whose metrics would have one name: `x.1` and `x_1`."""
        self._created += 1
        separator = "." if self._created % 2 else "_"
        name = f"{self.prefix}new{separator}{self._created // 3}"
        if name not in self.topics:
            self.topics.append(name)
        return name

    def group(self, rng: random.Random) -> str:
        return rng.choice((*self.groups, f"{self.prefix}group-{rng.randrange(3, 12)}"))

    def user(self, rng: random.Random) -> str:
        return f"{self.prefix}user-{rng.randrange(3)}"

    def member(self, rng: random.Random) -> str:
        return rng.choice(("", "", *self.ids.members))
