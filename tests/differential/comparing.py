"""Two answers as plain values without what may differ, and where they then still do."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.schema import Message, fields_of
from tests.differential.world import Ids, World

# Where a broker runs, how long it took, and how it words a sentence.
# Only Kafka has it: by its name it comes after all others.
BARRIER_TOPIC = "zzz-barrier"
MAY_DIFFER = {
    "batch_index_error_message",
    "broker_epoch",
    "cluster_id",
    "documentation",
    "error_message",
    "host",
    "log_dir",
    "port",
    "rack",
    "throttle_time_ms",
    "total_bytes",
    "transaction_start_time_ms",
    "usable_bytes",
}
# Their order is part of the answer.
ORDERED = {"replica_nodes", "isr_nodes", "replicas", "isr", "synonyms"}
_OF_AN_EPISODE = re.compile(r"^e\d+-")
_KEYS = (
    "name",
    "user",
    "topic",
    "group_id",
    "partition_index",
    "partition",
    "index",
    "api_key",
    "topic_id",
    "member_id",
)
_NAMES = ("name", "user", "topic", "topic_name", "group_id", "topic_id", "resource_name")


class Difference(NamedTuple):
    path: str
    """Field names from the answer down; what is in an array has its own name in brackets."""
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.path}: ours {shortened(repr(self.ours))}, Kafka's {shortened(repr(self.theirs))}"


class Missing(NamedTuple):
    """In place of a value that the other answer has."""

    def __repr__(self) -> str:
        return "nothing"


def plain(value: Any, ids: Ids, side: int, world: World, version: int, name: str = "") -> Any:
    """Structures become dicts, arrays are sorted, ids have their shared names."""
    if isinstance(value, Message):
        return {
            field.name: plain(getattr(value, field.name), ids, side, world, version, field.name)
            for field in fields_of(type(value))
            if version in field.versions and field.name not in MAY_DIFFER
        }
    if isinstance(value, list):
        elements = [plain(each, ids, side, world, version, name) for each in value if not _is_foreign(each, world)]
        elements = _merged(elements)
        return elements if name in ORDERED else sorted(elements, key=repr)
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    return ids.shared(side, name, value)


def _merged(elements: list[Any]) -> list[Any]:
    """One topic's partitions together: a fetch response may have them in several places."""
    topics: dict[Any, Any] = {}
    for each in elements:
        name = (each.get("topic") or each.get("topic_id")) if isinstance(each, dict) and "partitions" in each else None
        if name in topics:
            topics[name]["partitions"] = sorted(topics[name]["partitions"] + each["partitions"], key=repr)
        else:
            topics[name if name is not None else len(topics)] = each
    return list(topics.values())


def _is_foreign(element: Any, world: World) -> bool:
    """Whether it is about a topic or group of another episode: what lists everything has that too."""
    transactional_id = getattr(element, "transactional_id", None)
    if transactional_id is not None:
        return not transactional_id.startswith(world.prefix)
    for name in _NAMES:
        text = getattr(element, name, None)
        if isinstance(text, str):
            return text == BARRIER_TOPIC or (bool(_OF_AN_EPISODE.match(text)) and not text.startswith(world.prefix))
    return False


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[Difference]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours | theirs:
            yield from differences(
                ours.get(name, Missing()), theirs.get(name, Missing()), f"{path}.{name}".removeprefix(".")
            )
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield from _of_lists(ours, theirs, path)
    elif ours != theirs or type(ours) is not type(theirs):
        yield Difference(path, ours, theirs)


def _of_lists(ours: list[Any], theirs: list[Any], path: str) -> Iterator[Difference]:
    left, right = [_keyed(each) for each in (ours, theirs)]
    if left is None or right is None:
        if len(ours) == len(theirs):
            for one, other in zip(ours, theirs, strict=True):
                yield from differences(one, other, path)
        else:
            yield Difference(path, ours, theirs)
        return
    for key in left | right:
        yield from differences(left.get(key, Missing()), right.get(key, Missing()), f"{path}[{key}]")


def _keyed(elements: list[Any]) -> dict[Any, Any] | None:
    """Structures by what names them, where no two have the same name."""
    if not all(isinstance(each, dict) for each in elements):
        return None
    for names in (("resource_type", "resource_name"), *((name,) for name in _KEYS)):
        keyed = {
            "/".join(str(each[name]) for name in names): each
            for each in elements
            if all(each.get(name) is not None for name in names)
        }
        if len(keyed) == len(elements):
            return keyed
    return None


def without_names(path: str) -> str:
    return re.sub(r"\[[^]]*\]", "", path)


def shortened(text: str, characters_max: int = 300) -> str:
    return text if len(text) <= characters_max else f"{text[:characters_max]}…"
