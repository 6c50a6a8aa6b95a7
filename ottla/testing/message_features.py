"""What requests use of the protocol, and which errors answers have, by the tables of the messages: of each class it is
found out once where there may be any, as every request of a client is looked at."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.protocol.records.batch import BATCH_HEADER_SIZE, parse_batch_header
from ottla.protocol.records.compression import Codec
from ottla.protocol.schema import Message, fields_of

RESETS: Final = {-2: "reset to earliest", -1: "reset to latest"}
IF_SET: Final = {
    "group_instance_id": "static members",
    "rack_id": "racks",
    "isolation_level": "read_committed",
    "transactional_id": "transactions",
}
CODECS: Final = {int(codec): f"compression {codec.name.lower()}" for codec in Codec if codec}


class ErrorPlaces(NamedTuple):
    codes: tuple[str, ...]
    """Fields that are error codes."""
    lists: tuple[str, ...]
    """Fields that are lists of structures with error codes."""


class FeaturePlaces(NamedTuple):
    if_set: tuple[tuple[str, str], ...]
    """Fields, each with the feature that it means unless it is empty."""
    has_acks: bool
    has_records: bool
    has_timestamps: bool


def errors_in(response: Any) -> set[int]:
    """All error codes of a response that are not 0."""
    found: set[int] = set()
    _gather(response, found)
    return found


def _gather(message: Any, found: set[int]) -> None:
    if not isinstance(message, Message):
        return
    # Classes have a hash, though type checkers speak of that of their instances here.
    kind: Any = type(message)
    codes, lists = _error_places(kind)
    for name in codes:
        code = getattr(message, name)
        if code:
            found.add(int(code))
    for name in lists:
        for each in getattr(message, name) or ():
            _gather(each, found)


@cache
def _error_places(kind: type[Message]) -> ErrorPlaces:
    fields = fields_of(kind)
    codes = tuple(each.name for each in fields if each.name.endswith("error_code"))
    lists = (each for each in fields if each.is_array and each.struct is not None)
    structs: list[tuple[str, Any]] = [(each.name, each.struct) for each in lists]
    return ErrorPlaces(codes, tuple(name for name, struct in structs if any(_error_places(struct))))


def features_of(request: Any) -> Iterator[str]:
    if not isinstance(request, Message):
        return
    kind: Any = type(request)
    places = _feature_places(kind)
    for name, feature in places.if_set:
        if getattr(request, name):
            yield feature
    if places.has_acks and getattr(request, "acks", -1) == 0:
        yield "acks=0"
    if places.has_records:
        yield from _features_of_records(request)
    if places.has_timestamps:
        yield from (RESETS[each.timestamp] for each in _partitions(request) if each.timestamp in RESETS)


@cache
def _feature_places(kind: type[Message]) -> FeaturePlaces:
    names = {each.name for each in fields_of(kind)}
    if_set = tuple((name, feature) for name, feature in IF_SET.items() if name in names)
    return FeaturePlaces(if_set, "acks" in names, "topic_data" in names, "timestamp" in _partition_fields(kind))


def _partition_fields(kind: type[Message]) -> set[str]:
    """Of `topics`, of which each has `partitions`."""
    for name in ("topics", "partitions"):
        (struct,) = [each.struct for each in fields_of(kind) if each.name == name] or [None]
        if struct is None:
            return set()
        kind = struct
    return {each.name for each in fields_of(kind)}


def _partitions(request: Any) -> Iterator[Any]:
    for topic in request.topics or ():
        yield from topic.partitions or ()


def _features_of_records(request: Any) -> Iterator[str]:
    for topic in request.topic_data or ():
        for data in topic.partition_data or ():
            if data.records is not None and len(data.records) >= BATCH_HEADER_SIZE:
                header = parse_batch_header(data.records)
                if header.producer_id >= 0:
                    yield "idempotence"
                if header.codec in CODECS:
                    yield CODECS[header.codec]
