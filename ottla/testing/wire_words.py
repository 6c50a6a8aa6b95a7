"""What requests and answers say, in a few words: `brief` of a request, and the first error of a response.

Both are looked for with every request of a broker under test, so what a class of messages has is found out once.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

NAMES_SHOWN: Final = 3
TOPIC_ID: Final = "topic id "
_BRIEF_FIELDS: Final = {
    "group_id": "",
    "member_id": "member ",
    "generation_id": "generation ",
    "generation_id_or_member_epoch": "generation ",
    "transactional_id": "transactional ",
    "key": "key ",
}
_TOPICS: Final = ("topics", "topic_data")
_PARTS: Final = ("responses", "topics", "groups", "coordinators", "results")
_PARTS_OF_PARTS: Final = ("partition_responses", "partitions", "topics")
_SHOWN_TYPES: Final = (str, int)

# By class of messages.
_finders: dict[type[object], Callable[[Any], int]] = {}
_brief_of: dict[type[object], Callable[[Any], str]] = {}


def error_in(response: object) -> int:
    """The first error of a response: its own, or one of a topic, a group or a partition in it; 0 without any."""
    cls = type(response)
    found: int = (_finders.get(cls) or _finders.setdefault(cls, _error_of(cls, _PARTS)))(response)
    return found


def _error_of(cls: Any, parts: tuple[str, ...]) -> Callable[[Any], int]:
    """What finds the first error of such messages: their own, or one of `parts`, which have _PARTS_OF_PARTS."""
    has_own = hasattr(cls, "error_code")
    lists = tuple(attrgetter(name) for name in parts if hasattr(cls, name))
    inner = _PARTS_OF_PARTS if parts is _PARTS else ()
    of_parts: dict[type[object], Callable[[Any], int]] = {}

    def first_error(message: Any) -> int:
        if has_own and message.error_code:
            return int(message.error_code)
        each: object
        for list_of in lists:
            for each in list_of(message) or ():
                cls = type(each)
                if found := (of_parts.get(cls) or of_parts.setdefault(cls, _error_of(cls, inner)))(each):
                    return found
        return 0

    return first_error


def brief(request: object) -> str:
    """The fields of a request that say what it is about: group, generation, topics, transactional id, and the offsets
    that it commits."""
    cls = type(request)
    said: str = (_brief_of.get(cls) or _brief_of.setdefault(cls, brief_of(cls)))(request)
    return said


def brief_of(cls: Any) -> Callable[[Any], str]:
    """`brief` of the requests of a class."""
    fields = tuple((attrgetter(name), word) for name, word in _BRIEF_FIELDS.items() if hasattr(cls, name))
    lists = tuple(attrgetter(name) for name in _TOPICS if hasattr(cls, name))

    def said(request: Any) -> str:
        words: list[str] = []
        for value_of, word in fields:
            value = value_of(request)
            if value is not None and value != "" and isinstance(value, _SHOWN_TYPES):
                words.append(f"{word}{value}")
        for list_of in lists:
            topics = list_of(request)
            if topics:
                words.append(_topics(topics))
                break
        return " ".join(words) if len(words) != 1 else words[0]

    return said


def _topics(topics: Sequence[Any]) -> str:
    if len(topics) == 1 and not _committed(topics[0]):
        return _topic_name(topics[0])
    places = [(topic, each) for topic in topics for each in _committed(topic)] or [(topic, None) for topic in topics]
    more = f" and {len(places) - NAMES_SHOWN} more" if len(places) > NAMES_SHOWN else ""
    return ", ".join(_place(topic, each) for topic, each in places[:NAMES_SHOWN]) + more


def _committed(topic: Any) -> Sequence[Any]:
    """Its partitions, where the request commits offsets."""
    partitions = getattr(topic, "partitions", None) or ()
    return partitions if partitions and hasattr(partitions[0], "committed_offset") else ()


def _place(topic: Any, committed: Any) -> str:
    name = _topic_name(topic)
    return name if committed is None else f"{name}-{committed.partition_index}: {committed.committed_offset}"


def _topic_name(topic: Any) -> str:
    if isinstance(topic, str):
        return topic
    name = getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name:
        return str(name)
    topic_id = getattr(topic, "topic_id", b"")
    return _short_id(topic_id) if topic_id else "?"


def _short_id(topic_id: bytes) -> str:
    return f"{TOPIC_ID}{topic_id.hex()[:8]}"


def with_topic_names(what: str, names: Mapping[bytes, str]) -> str:
    """What `brief` gives, with the names of topics for their ids, as far as they are known."""
    if TOPIC_ID in what:
        for topic_id, name in names.items():
            what = what.replace(_short_id(topic_id), name)
    return what
