"""What brokers give out as names, and what two runs of the same clients may differ in otherwise.

A member id of one run stands for one of the other, and for no second one; so do producer ids, topic ids, session ids,
generations and the ids of brokers. Which one it is follows from answers to the same request.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.protocol.schema import Field, Message, fields_of

NODE, MEMBER, GENERATION, TOPIC, SESSION, PRODUCER, PRODUCER_EPOCH, LEADER_EPOCH, BROKER_EPOCH = (
    "node", "member", "generation", "topic", "session", "producer", "producer epoch", "leader epoch", "broker epoch",
)  # fmt: skip
KINDS: Final = {
    "node_id": NODE,
    "leader_id": NODE,
    "controller_id": NODE,
    "replica_nodes": NODE,
    "isr_nodes": NODE,
    "offline_replicas": NODE,
    "broker_ids": NODE,
    "preferred_read_replica": NODE,
    "member_id": MEMBER,
    "leader": MEMBER,
    "generation_id": GENERATION,
    "generation_id_or_member_epoch": GENERATION,
    "topic_id": TOPIC,
    "session_id": SESSION,
    "producer_id": PRODUCER,
    "producer_epoch": PRODUCER_EPOCH,
    "leader_epoch": LEADER_EPOCH,
    "current_leader_epoch": LEADER_EPOCH,
    "committed_leader_epoch": LEADER_EPOCH,
    "last_fetched_epoch": LEADER_EPOCH,
    "broker_epoch": BROKER_EPOCH,
}
"""By the names of fields."""
MAY_DIFFER: Final = frozenset(
    {
        "advertised_listeners",
        "batch_index_error_message",
        "client_software_version",
        "cluster_id",
        "error_message",
        "finalized_features_epoch",
        "host",
        "log_dir",
        "port",
        "rack",
        "throttle_time_ms",
        "total_bytes",
        "usable_bytes",
    }
)
"""Where a broker runs, how long it took, and how it words a sentence."""
TIMES: Final = ("timestamp", "_time_ms", "timestamp_ms")
_KEYS: Final = ("name", "topic", "partition_index", "partition", "index", "group_id", "key", "api_key", "coordinator")
_IDENTITY_KEYS: Final = {"topic_id": TOPIC, "member_id": MEMBER, "node_id": NODE}
_NONE: Final[tuple[Any, ...]] = ("", -1, 0, bytes(16), None)


NO_LEADER_EPOCH: Final = -1


class Nothing:
    """In place of a value that only the other message has."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = Nothing()


class Leaf(NamedTuple):
    """A value of two messages at the same place."""

    path: str
    name: str
    a: Any
    b: Any
    kind: str | None
    scope: Any
    """What an identity is one of: a generation of a group, an epoch of a producer."""


class Identities:
    """Which value of the one stands for which of the other."""

    def __init__(self) -> None:
        self._of_a: dict[tuple[str, Any, Any], Any] = {}
        self._of_b: dict[tuple[str, Any, Any], Any] = {}
        self._ambiguous: set[tuple[str, Any, Any]] = set()

    def bind(self, kind: str, scope: Any, a: Any, b: Any) -> bool:
        """False where one of them stands for another already, or says that there is none."""
        if is_none(kind, a) or is_none(kind, b):
            return bool(a == b)
        known_a = self._of_a.setdefault((kind, scope, a), b)
        known_b = self._of_b.setdefault((kind, scope, b), a)
        return bool(known_a == b and known_b == a)

    def learn(self, kind: str, scope: Any, a: Any, b: Any) -> None:
        """From here on `b` stands for `a`, whatever did before."""
        key = kind, scope, a
        if not is_none(kind, a):
            if kind == LEADER_EPOCH and self._of_a.get(key, b) != b:
                self._ambiguous.add(key)
            self._of_a[key] = b

    def get(self, kind: str, scope: Any, a: Any) -> Any:
        """What stands for it; itself, where that is not known. Leader epochs that stand for several, as may
        those of several partitions, are sent as unknown, which no broker refuses."""
        if (kind, scope, a) in self._ambiguous:
            return NO_LEADER_EPOCH
        return self._of_a.get((kind, scope, a), a)


def is_none(kind: str, value: Any) -> bool:
    """Whether it says that there is none. Nodes, producers and epochs begin at 0."""
    if kind in (NODE, PRODUCER, PRODUCER_EPOCH, LEADER_EPOCH, GENERATION, BROKER_EPOCH):
        return value is None or (isinstance(value, int) and value < 0)
    return value in _NONE


def scope_of(kind: str | None, owner: Message, group: str) -> Any:
    if kind == GENERATION:
        return group
    return getattr(owner, "producer_id", None) if kind == PRODUCER_EPOCH else None


def leaves(a: Message, b: Message, version: int, ids: Identities, group: str, path: str = "") -> Iterator[Leaf]:
    """Of two messages of one class. `group`: that of the request."""
    for field in fields_of(type(a)):
        if version in field.versions and field.name not in MAY_DIFFER:
            values = getattr(a, field.name), getattr(b, field.name)
            yield from _leaves_of(field, a, *values, version, ids, group, f"{path}.{field.name}".removeprefix("."))


def _leaves_of(
    field: Field, owner: Message, a: Any, b: Any, version: int, ids: Identities, group: str, path: str
) -> Iterator[Leaf]:
    of_a: Any = a
    of_b: Any = b
    if isinstance(a, Message) and isinstance(b, Message):
        yield from leaves(a, b, version, ids, group, path)
    elif isinstance(a, list) and isinstance(b, list) and field.type_name != "records":
        pairs = _aligned(of_a, of_b, ids)
        for index, (one, other) in enumerate(pairs):
            place = f"{path}[{_label(one if one is not NOTHING else other, index)}]"
            yield from _leaves_of(field, owner, one, other, version, ids, group, place)
    else:
        kind = KINDS.get(field.name)
        yield Leaf(path, field.name, a, b, kind, scope_of(kind, owner, group))


def _aligned(a: list[Any], b: list[Any], ids: Identities) -> list[tuple[Any, Any]]:
    """Elements that have the same name, or names that stand for each other; the others in their order."""
    for key in (*_KEYS, *_IDENTITY_KEYS):
        names = [[getattr(each, key, None) for each in side] for side in (a, b)]
        if all(_name_elements(side) for side in names) and (a or b):
            return _aligned_by(a, b, names[0], names[1], ids, _IDENTITY_KEYS.get(key))
    length = max(len(a), len(b))
    return [(a[at] if at < len(a) else NOTHING, b[at] if at < len(b) else NOTHING) for at in range(length)]


def _name_elements(names: list[Any]) -> bool:
    return len(set(map(repr, names))) == len(names) and all(each not in (None, "", bytes(16)) for each in names)


def _aligned_by(
    a: list[Any], b: list[Any], names_a: list[Any], names_b: list[Any], ids: Identities, kind: str | None
) -> list[tuple[Any, Any]]:
    rest = dict(zip(names_b, b, strict=True))
    pairs: list[tuple[Any, Any]] = []
    alone: list[Any] = []
    for name, each in zip(names_a, a, strict=True):
        wanted = name if kind is None else ids.get(kind, None, name)
        if wanted in rest:
            pairs.append((each, rest.pop(wanted)))
        else:
            alone.append(each)
    others = list(rest.values())
    if kind is not None:
        # What is not known yet stands for what is left, in order.
        while alone and others:
            pairs.append((alone.pop(0), others.pop(0)))
    return [*pairs, *((each, NOTHING) for each in alone), *((NOTHING, each) for each in others)]


def _label(element: Any, index: int) -> Any:
    for key in _KEYS:
        name = getattr(element, key, None)
        if name not in (None, ""):
            return name
    return index
