"""Where an error goes in the response of each API, in each version, and which other fields go with it.

The places come from the message tables: every `error_code` field of a response, at the top or in what answers a unit of
the request (`request_units`). An error goes to the most specific place that a rule names; where there is none for the
whole request, each unit gets it.
"""

from functools import cache
from typing import Any, Final, NamedTuple

from ottla.broker.server.apis import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Message, fields_of
from ottla.testing.faults.request_units import Level, Unit, levels_of, put_in, struct_of

TOP: Final = 0
_ERROR_FIELDS: Final = ("error_code", "partition_error_code")
# In the response only: below what answers a unit, or in an array that no unit of the request has.
_INNER: Final = {
    "Metadata": ("partitions", "partition_index"),
    "DescribeTopicPartitions": ("partitions", "partition_index"),
}
_EACH: Final = {"DescribeLogDirs": "results"}
# Codes about a topic or a partition are not about the whole request, where there is a place for them.
_OF_UNITS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }
)
# These APIs have only so many errors at the top.
_AT_TOP: Final = {
    "Fetch": frozenset(
        {
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ErrorCode.STALE_BROKER_EPOCH,
        }
    ),
    "Metadata": frozenset({ErrorCode.REBOOTSTRAP_REQUIRED}),
}
# Other fields of what has the error, where Kafka does not leave them at the default of the message.
_COMPANIONS: Final[dict[str, dict[str, Any]]] = {
    "PartitionProduceResponse": {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1},
    "PartitionData": {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "records": b""},
    "ListOffsetsPartitionResponse": {"timestamp": -1, "offset": -1},
    "OffsetFetchResponsePartition": {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""},
    "OffsetFetchResponsePartitions": {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""},
    "FindCoordinatorResponse": {"node_id": -1, "host": "", "port": -1},
    "Coordinator": {"node_id": -1, "host": "", "port": -1},
    "JoinGroupResponse": {"generation_id": -1},
    "InitProducerIdResponse": {"producer_id": -1, "producer_epoch": -1},
    "DeleteRecordsPartitionResult": {"low_watermark": -1},
    "EpochEndOffset": {"leader_epoch": -1, "end_offset": -1},
    "CreatableTopicResult": {"num_partitions": -1, "replication_factor": -1},
    "DescribeClientQuotasResponse": {"entries": None},
    "MetadataResponsePartition": {"leader_id": -1},
    "DescribeTopicPartitionsResponsePartition": {"leader_id": -1},
}


class Place(NamedTuple):
    depth: int
    """`TOP`, or how many levels down the request's units the answer is that has the error."""
    field: str
    inner: tuple[str, str] | None = None
    """In the answer to the unit: the array of what has the error, and the field with its partition."""
    each: str | None = None
    """The array of the response whose elements all have it."""


class Injected(NamedTuple):
    code: ErrorCode
    sentence: str
    """For `error_message` fields."""


@cache
def places_of(api: Api, version: int) -> tuple[Place, ...]:
    """All of them, the least specific first."""
    found: list[Place] = []
    owner: type[Message] = api.response_class()
    field = error_field(owner, version)
    if field is not None:
        found.append(Place(TOP, field))
    for depth, level in enumerate(levels_of(api, version), 1):
        if not level.answered:
            continue
        owner = struct_of(owner, level.answered)
        field = error_field(owner, version)
        if field is not None:
            found.append(Place(depth, field))
    if api.name in _INNER:
        field = error_field(struct_of(owner, _INNER[api.name][0]), version)
        assert field is not None, f"{api.name} has errors of partitions"
        found.append(Place(len(levels_of(api, version)) + 1, field, inner=_INNER[api.name]))
    if api.name in _EACH:
        field = error_field(struct_of(api.response_class(), _EACH[api.name]), version)
        assert field is not None, f"{api.name} has errors of elements"
        found.append(Place(TOP, field, each=_EACH[api.name]))
    return tuple(found)


def place_of(api: Api, version: int, code: ErrorCode, named: frozenset[str], *, at_top: bool = False) -> Place | None:
    """Where the error goes if a rule names these fields of units. None where the version has no place for any."""
    places = places_of(api, version)
    top = [place for place in places if place.depth == TOP and place.each is None]
    if at_top and top:
        return top[0]
    if top and code in _AT_TOP.get(api.name, ()):
        return top[0]
    depth = named_depth(api, version, named)
    deeper = [place for place in places if place.depth >= max(depth, 1) or place.each is not None]
    is_of_unit = code in _OF_UNITS or (api.name in _AT_TOP and code not in _AT_TOP[api.name])
    if deeper and (depth or is_of_unit or not top):
        return deeper[0]
    return top[0] if top else None


def named_depth(api: Api, version: int, named: frozenset[str]) -> int:
    """How many levels down the deepest unit is that these fields name; 0 for none of its units."""
    levels = levels_of(api, version)
    found = [depth for depth, level in enumerate(levels, 1) if any(key.field in named for key in level.keys)]
    if api.name in _INNER and "partition" in named:
        found.append(len(levels) + 1)
    return max(found, default=TOP)


def has_inner_partitions(api: Api) -> bool:
    """Whether only its response names partitions."""
    return api.name in _INNER


def refused(api: Api, version: int, request: Any, injected: Injected) -> Any:
    """The response of a request that fails as a whole."""
    response_class = api.response_class()
    field = error_field(response_class, version)
    assert field is not None, f"{api.name} v{version} has no error of the whole request"
    response = response_class(**_error_fields(response_class, field, injected))
    if api.name == "JoinGroup":
        response.member_id = request.member_id
    return response


def refuse_unit(response: Any, levels: tuple[Level, ...], place: Place, unit: Unit, injected: Injected) -> None:
    """Puts the refusal of a unit that was not served into the response."""
    made = put_in(response, levels[: place.depth], unit)
    describe_refusal(made, place, injected)


def describe_refusal(element: Message, place: Place, injected: Injected) -> None:
    """Makes an answer the one to something that failed, whatever it was."""
    for name, value in _error_fields(type(element), place.field, injected).items():
        setattr(element, name, value)


def blank(element: Any, levels: tuple[Level, ...], depth: int) -> Any:
    """An answer to the same unit, and nothing else."""
    names = {key.answered for key in levels[depth - 1].keys if key.answered}
    return type(element)(**{name: getattr(element, name) for name in names})


def error_field(owner: type[Message], version: int) -> str | None:
    """The field of a structure that has the error, in a version that carries it."""
    names = {field.name for field in fields_of(owner) if version in field.versions}
    return next((name for name in _ERROR_FIELDS if name in names), None)


def _error_fields(owner: type[Message], field: str, injected: Injected) -> dict[str, Any]:
    names = {each.name for each in fields_of(owner)}
    fields = {name: value for name, value in _COMPANIONS.get(owner.__name__, {}).items() if name in names}
    if "error_message" in names:
        fields["error_message"] = injected.sentence
    return {**fields, field: int(injected.code)}
