"""What a request names one by one: topics, partitions, groups, members. Its *units*, each of which can fail by itself.

The table says of each API by which arrays a request names them, and in which arrays of the response each is answered.
With it a unit is found by the fields that rules match, taken out of a request before the request is served, and put
into the response with an error of its own. One line per API and range of versions; a level for each array:

    asked>answered  field:request_field>response_field ...

`asked` is an array of the request (or several, with commas), `answered` that of the response; empty where the response
has no such array. `field` is what a rule calls it; a field with a number holds for resources of that type only.
`response_field` is where the response repeats it, by default under the same name. `*` is the element itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from ottla.broker.server.apis import APIS, Api
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import Message, Versions, fields_of

TABLE = """
Produce 3-13 | topic_data>responses topic:name topic_id:topic_id | partition_data>partition_responses partition:index
Fetch 4-18 | topics>responses topic:topic topic_id:topic_id | partitions>partitions partition:partition>partition_index
ListOffsets 1-10 | topics>topics topic:name | partitions>partitions partition:partition_index
Metadata 0-13 | topics>topics topic:name topic_id:topic_id
OffsetCommit 2-9 | topics>topics topic:name | partitions>partitions partition:partition_index
OffsetFetch 1-7 | topics>topics topic:name | partition_indexes>partitions partition:*>partition_index
OffsetFetch 8-9 | groups>groups group:group_id member:member_id> | topics>topics topic:name \
 | partition_indexes>partitions partition:*>partition_index
FindCoordinator 4-6 | coordinator_keys>coordinators key:*>key
LeaveGroup 3-5 | members>members member:member_id instance:group_instance_id
DescribeGroups 0-6 | groups>groups group:*>group_id
CreateTopics 2-7 | topics>topics topic:name
DeleteTopics 1-5 | topic_names>responses topic:*>name
DeleteTopics 6-6 | topics>responses topic:name topic_id:topic_id
DeleteRecords 0-2 | topics>topics topic:name | partitions>partitions partition:partition_index
OffsetForLeaderEpoch 2-4 | topics>topics topic:topic | partitions>partitions partition:partition
AddPartitionsToTxn 0-3 | v3_and_below_topics>results_by_topic_v3_and_below topic:name \
 | partitions>results_by_partition partition:*>partition_index
AddPartitionsToTxn 4-5 | transactions>results_by_transaction transactional_id:transactional_id \
 | topics>topic_results topic:name | partitions>results_by_partition partition:*>partition_index
WriteTxnMarkers 1-2 | markers>markers :producer_id | topics>topics topic:name \
 | partition_indexes>partitions partition:*>partition_index
TxnOffsetCommit 0-5 | topics>topics topic:name | partitions>partitions partition:partition_index
CreateAcls 1-3 | creations>results
DeleteAcls 1-3 | filters>filter_results
DescribeConfigs 1-4 | resources>results topic@2:resource_name group@32:resource_name :resource_type
AlterConfigs 0-2 | resources>responses topic@2:resource_name group@32:resource_name :resource_type
IncrementalAlterConfigs 0-1 | resources>responses topic@2:resource_name group@32:resource_name :resource_type
AlterReplicaLogDirs 1-2 | dirs> | topics>results topic:name>topic_name \
 | partitions>partitions partition:*>partition_index
DescribeLogDirs 1-4 | topics> topic:topic | partitions> partition:*
CreatePartitions 0-3 | topics>results topic:name
DeleteGroups 0-2 | groups_names>results group:*>group_id
ElectLeaders 0-2 | topic_partitions>replica_election_results topic:topic \
 | partitions>partition_result partition:*>partition_id
AlterPartitionReassignments 0-1 | topics>responses topic:name | partitions>partitions partition:partition_index
ListPartitionReassignments 0-0 | topics> topic:name | partition_indexes> partition:*
OffsetDelete 0-0 | topics>topics topic:name | partitions>partitions partition:partition_index
AlterClientQuotas 0-1 | entries>entries :entity
DescribeUserScramCredentials 0-0 | users>results :name>user
AlterUserScramCredentials 0-0 | deletions,upsertions>results :name>user
DescribeQuorum 0-2 | topics>topics topic:topic_name | partitions>partitions partition:partition_index
UpdateFeatures 0-1 | feature_updates>results :feature
DescribeProducers 0-0 | topics>topics topic:name | partition_indexes>partitions partition:*>partition_index
DescribeTransactions 0-0 | transactional_ids>transaction_states transactional_id:*>transactional_id
DescribeTopicPartitions 0-0 | topics>topics topic:name
"""
THE_ELEMENT = "*"
Path = tuple[int, ...]
"""Where a unit stands in its request: the index in each level's array."""


class Key(NamedTuple):
    field: str
    """What rules call it; empty for what they do not match."""
    resource_type: int | None
    asked: str
    answered: str


class Level(NamedTuple):
    asked: tuple[str, ...]
    answered: str
    keys: tuple[Key, ...]


class Unit:
    """One thing that a request names, with the values by which rules find it."""

    __slots__ = ("elements", "path", "values")

    def __init__(self, path: Path, elements: tuple[Any, ...], values: dict[str, Any]) -> None:
        """`elements`: those of the request, one of each level; empty where it asks for all there is."""
        self.path = path
        self.elements = elements
        self.values = values


def levels_of(api: Api, version: int) -> tuple[Level, ...]:
    """None of an API whose requests are one whole. Keys are those that this version carries."""
    return _levels(api.key, version)


@cache
def _levels(key: int, version: int) -> tuple[Level, ...]:
    # By numbers: the hash of a whole row takes as long as a request.
    api = APIS[key]
    rows = _rows().get(api.name, ())
    levels = next((levels for versions, levels in rows if version in versions), ())
    carried: list[Level] = []
    owner: type[Message] | None = api.request_class()
    for level in levels:
        assert owner is not None, f"{api.name}: only the last level has elements without fields"
        owner = next(field.struct for field in fields_of(owner) if field.name == level.asked[0])
        names = {THE_ELEMENT} if owner is None else {each.name for each in fields_of(owner) if version in each.versions}
        carried.append(level._replace(keys=tuple(key for key in level.keys if key.asked in names)))
    return tuple(carried)


@cache
def unit_fields(api: Api) -> frozenset[str]:
    """What rules can match of the units of an API, in any version."""
    levels = [level for _, row in _rows().get(api.name, ()) for level in row]
    return frozenset(key.field for level in levels for key in level.keys if key.field)


def units_of(request: Any, levels: Sequence[Level]) -> list[Unit]:
    """In the order of the request. Where one names all that is below it by a null list, it is the unit itself."""
    return list(_walk(request, levels, (), (), {})) if levels else []


def take_out(request: Any, levels: Sequence[Level], paths: set[Path]) -> bool:
    """Takes what stands at these paths, of any depth, out of the request, and what is empty then. Says whether
    something is left."""
    return _take_out(request, levels, (), paths)


def is_asked_for_all(request: Any, levels: Sequence[Level]) -> bool:
    """Whether the request names all there is by a null list."""
    return bool(levels) and any(getattr(request, name) is None for name in levels[0].asked)


def put_in(response: Any, levels: Sequence[Level], unit: Unit) -> Any:
    """Answers a unit in the response, in the order of the request if that is done in this order; gives the new element.
    `levels` are those down to the one that has the error."""
    owner: Message = response
    made: Any = None
    for depth, level in enumerate(levels):
        if not level.answered:
            continue
        struct = struct_of(type(owner), level.answered)
        known = {key.answered: _as_answered(struct, key, unit.elements[depth]) for key in level.keys if key.answered}
        array = list(getattr(owner, level.answered) or ())
        is_last = depth == len(levels) - 1
        made = None if is_last else next((each for each in array if _has(each, known)), None)
        if made is None:
            made = struct(**known)
            array.insert(min(unit.path[depth], len(array)), made)
            setattr(owner, level.answered, array)
        owner = made
    return made


def find_answer(response: Any, levels: Sequence[Level], unit: Unit) -> tuple[list[Any], int] | None:
    """Where the response answers the unit: the array and the index in it. None where it does not."""
    owner: Message = response
    found: tuple[list[Any], int] | None = None
    for depth, level in enumerate(levels):
        if not level.answered:
            continue
        struct = struct_of(type(owner), level.answered)
        known = {key.answered: _as_answered(struct, key, unit.elements[depth]) for key in level.keys if key.answered}
        array: list[Any] = getattr(owner, level.answered) or []
        index = next((index for index, each in enumerate(array) if _has(each, known)), None)
        if not known:
            # Answers of such APIs stand in the order of the request.
            index = unit.path[depth] if unit.path[depth] < len(array) else None
        if index is None:
            return None
        found = array, index
        owner = array[index]
    return found


def _walk(
    owner: Any, levels: Sequence[Level], path: Path, elements: tuple[Any, ...], values: dict[str, Any]
) -> Iterator[Unit]:
    level, *deeper = levels
    for index, element in enumerate(_elements(owner, level)):
        known = {**values}
        for key in level.keys:
            if key.field and (key.resource_type is None or element.resource_type == key.resource_type):
                known[key.field] = element if key.asked == THE_ELEMENT else getattr(element, key.asked)
        if deeper and not is_asked_for_all(element, deeper):
            yield from _walk(element, deeper, (*path, index), (*elements, element), known)
        else:
            yield Unit((*path, index), (*elements, element), known)


def _elements(owner: Any, level: Level) -> Iterable[Any]:
    return [element for name in level.asked for element in getattr(owner, name) or ()]


def _take_out(owner: Any, levels: Sequence[Level], path: Path, paths: set[Path]) -> bool:
    level, *deeper = levels
    begin, left = 0, False
    for name in level.asked:
        elements = getattr(owner, name)
        if elements is None:
            left = True  # It asks for all there is.
            continue
        kept = [
            element
            for index, element in enumerate(elements, begin)
            if (*path, index) not in paths and (not deeper or _take_out(element, deeper, (*path, index), paths))
        ]
        begin += len(elements)
        left = left or bool(kept)
        setattr(owner, name, kept)
    return left


def _as_answered(struct: type[Message], key: Key, element: Any) -> Any:
    value = element if key.asked == THE_ELEMENT else getattr(element, key.asked)
    own = next(field for field in fields_of(struct) if field.name == key.answered).struct
    if own is None:
        return value
    # The response has structures of its own.
    names = [field.name for field in fields_of(own)]
    return [own(**{name: getattr(each, name) for name in names}) for each in value]


def _has(element: Any, known: dict[str, Any]) -> bool:
    """Of a topic, a request names the one or the other: its name or its id."""
    said = {name: value for name, value in known.items() if value is not None and value != ZERO_UUID}
    return bool(said) and all(getattr(element, name) == value for name, value in said.items())


def struct_of(owner: type[Message], field_name: str) -> type[Message]:
    """The class of the elements of a field."""
    struct = next(field.struct for field in fields_of(owner) if field.name == field_name)
    assert struct is not None, f"{owner.__name__}.{field_name} has no structures"
    return struct


@cache
def _rows() -> dict[str, list[tuple[Versions, tuple[Level, ...]]]]:
    found: dict[str, list[tuple[Versions, tuple[Level, ...]]]] = {}
    for line in TABLE.strip().splitlines():
        head, *levels = line.split("|")
        name, span = head.split()
        first, last = map(int, span.split("-"))
        found.setdefault(name, []).append((Versions(first, last), tuple(map(_parse_level, levels))))
    return found


def _parse_level(text: str) -> Level:
    arrays, *keys = text.split()
    asked, answered = arrays.split(">")
    return Level(tuple(asked.split(",")), answered, tuple(map(_parse_key, keys)))


def _parse_key(text: str) -> Key:
    field, _, names = text.partition(":")
    field, _, resource_type = field.partition("@")
    asked, arrow, answered = names.partition(">")
    return Key(field, int(resource_type) if resource_type else None, asked, answered if arrow else asked)
