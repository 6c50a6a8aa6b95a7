"""Requests drawn from a seed: mostly what clients send, with values at and beyond the bounds among them.

A value is drawn by the name of its field, which means the same in all of Kafka's messages; fields that no rule knows
get values of their type. So an API is drawn as soon as it has a row in the table. What brokers choose by themselves
(ids of topics, members, sessions) is drawn under a name that both share, see `Ids`.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any

from ottla.broker.server.apis import Api
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import Field, Message, fields_of
from ottla.security.quotas import CLIENT_KEYS, QUOTA_KEYS
from tests.differential.records import drawn_records
from tests.differential.values import (
    BROKER_CONFIGS,
    CONFIG_TYPES,
    EDGES,
    OPERATIONS,
    PLAIN,
    TIMEOUTS_MS,
    TOPIC_CONFIGS,
)
from tests.differential.world import NOWHERE, World

INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
TOPIC_RESOURCE = 2
RESOURCES_OF_ALL = (4, 8)  # Brokers, their loggers: altered, they would not be the same for the next episode.
SHA_512 = 2
ARRAY_LENGTHS = (1, 1, 1, 1, 2, 2, 3)


class Drawing:
    """Draws one request. `wildness` is the share of fields with a value at the edge of what is allowed."""

    def __init__(self, world: World, rng: random.Random, wildness: float) -> None:
        self._world = world
        self._rng = rng
        self._wildness = wildness
        self._rules = self._by_name()

    def request(self, api: Api, version: int) -> Any:
        request = self._message(api.request_class(), version)
        harmless(request)
        return request

    def _message(self, cls: type[Message], version: int) -> Any:
        message = cls()
        for field in fields_of(cls):
            if version in field.versions:
                setattr(message, field.name, self._field(cls, field, version))
        if hasattr(message, "resource_type") and hasattr(message, "resource_name"):
            self._name_resource(message)
        return message

    def _field(self, cls: type[Message], field: Field, version: int) -> Any:
        rng = self._rng
        is_wild = rng.random() < self._wildness
        if field.tag is not None and rng.random() < 0.7:
            return field.default_value()
        if version in field.nullable and rng.random() < (0.5 if field.default == "null" else 0.08):
            return None
        if field.is_array:
            count = rng.choice((0, 2, 3, 4)) if is_wild else rng.choice(ARRAY_LENGTHS)
            elements = distinct(self._element(cls, field, version, is_wild) for _ in range(count))
            if is_wild and elements and rng.random() < 0.5:
                elements.append(elements[0])  # The same twice in one request.
            return elements
        return self._element(cls, field, version, is_wild)

    def _element(self, cls: type[Message], field: Field, version: int, is_wild: bool) -> Any:
        if field.struct is not None:
            return self._message(field.struct, version)
        draw = self._rule(cls, field)
        edges = EDGES.get(f"{cls.__name__}.{field.name}") or EDGES.get(field.name)
        if is_wild and edges is not None:
            edge = self._rng.choice(edges)
            return self._world.nowhere if edge == NOWHERE else edge
        if draw is not None:
            return draw()
        usual = PLAIN.get(f"{cls.__name__}.{field.name}") or PLAIN.get(field.name)
        if not is_wild and usual is not None:
            plain = self._rng.choice(usual)
            return self._of_type(field) if plain is None and version not in field.nullable else plain
        return self._of_type(field)

    def _by_name(self) -> dict[str, Callable[[], Any]]:
        world, rng = self._world, self._rng
        configs = list(TOPIC_CONFIGS | BROKER_CONFIGS)
        values = list((TOPIC_CONFIGS | BROKER_CONFIGS).values())
        rules: dict[str, Callable[[], Any]] = {
            "CreatableTopic.name": world.new_topic,
            "CreatableTopicConfig.name": lambda: rng.choice(list(TOPIC_CONFIGS)),
            "AlterableConfig.name": lambda: rng.choice(configs),
            "JoinGroupRequestProtocol.name": lambda: rng.choice(("range", "roundrobin")),
            "configuration_keys": lambda: rng.choice(configs),
            "value": lambda: rng.choice(rng.choice(values)),
            "member_id": lambda: world.member(rng),
            "group_instance_id": lambda: rng.choice(("instance-1", "instance-2")),
            "path": lambda: rng.choice(("/nowhere", "")),
            "resource_types": lambda: rng.choice(CONFIG_TYPES),
            "QuorumTopic.topic_name": lambda: rng.choice(("__cluster_metadata", world.topic(rng))),
            "session_id": lambda: world.ids.session(rng),
            "resource_type": lambda: rng.choice(CONFIG_TYPES),
            # Apache Kafka closes the connection where it does not know one of these.
            "AclCreation.resource_type": lambda: rng.choice((2, 3, 4, 5)),
            "resource_type_filter": lambda: rng.choice((1, 2, 3, 4, 5, 6)),
            "resource_pattern_type": lambda: rng.choice((3, 4)),
            "pattern_type_filter": lambda: rng.choice((1, 2, 3, 4)),
            "operation": lambda: rng.choice(range(2, 13)),
            "permission_type": lambda: rng.choice((2, 3)),
            "principal": lambda: rng.choice(("User:alice", "User:*", "alice")),
            "host": lambda: rng.choice(("*", "10.0.0.1")),
            "OpData.key": lambda: rng.choice((*QUOTA_KEYS, *CLIENT_KEYS)),
            "OpData.value": lambda: rng.choice((1024.0, 1.0, 0.5)),
            "config_operation": lambda: rng.choice(OPERATIONS),
            "salt": lambda: rng.choice((b"8 bytes.", b"a salt of seventeen")),
        }
        users = ("UserName.name", "ScramCredentialDeletion.name", "ScramCredentialUpsertion.name")
        rules |= dict.fromkeys(users, lambda: world.user(rng))
        rules |= dict.fromkeys(("name", "topic", "topic_names", "topic_name"), lambda: world.topic(rng))
        rules |= dict.fromkeys(("topic_id", "topic_ids"), lambda: world.ids.topic_id(world.topic(rng)))
        groups = ("group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "key")
        return rules | dict.fromkeys(groups, lambda: world.group(rng))

    def _rule(self, cls: type[Message], field: Field) -> Callable[[], Any] | None:
        if field.type_name == "records":
            return lambda: drawn_records(self._rng, self._wildness)
        if field.name.endswith("timeout_ms"):
            return lambda: self._rng.choice(TIMEOUTS_MS.get(field.name, TIMEOUTS_MS["timeout_ms"]))
        return self._rules.get(f"{cls.__name__}.{field.name}") or self._rules.get(field.name)

    def _name_resource(self, resource: Any) -> None:
        rng = self._rng
        if resource.resource_type == TOPIC_RESOURCE:
            resource.resource_name = self._world.topic(rng)
        elif rng.random() < 0.9:
            resource.resource_name = rng.choice(("1", "1", "1", "", "7", "one"))

    def _of_type(self, field: Field) -> Any:
        rng = self._rng
        match field.type_name:
            case "bool":
                return rng.random() < 0.5
            case "string":
                return rng.choice(("", "a", "größe", "x" * 300))
            case "bytes":
                return rng.randbytes(rng.choice((0, 1, 20)))
            case "uuid":
                return ZERO_UUID
            case "float64":
                return rng.choice((0.0, 1.0, -1.0))
            case number:
                bits = INT_BITS[number]
                low, high = (0, 2**bits - 1) if number[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
                return rng.choice((low, high, 0, 1, 2, 0 if number[0] == "u" else -1))


def distinct(elements: Iterable[Any]) -> list[Any]:
    """Those that are not about the same as one before."""
    seen: dict[Any, Any] = {}
    for each in elements:
        seen.setdefault(subject(each), each)
    return list(seen.values())


def subject(element: Any) -> Any:
    """What an element of an array is about: the first of its fields, two of a config's resource."""
    if not isinstance(element, Message):
        return element
    names = [field.name for field in fields_of(type(element))]
    if "resource_name" in names:
        return element.resource_type, element.resource_name  # type: ignore[attr-defined]
    first = getattr(element, names[0])
    if names[0] == "topic_id" and len(names) > 1 and not any(first):
        return getattr(element, names[1])
    if names[:2] == ["topic", "topic_id"]:
        return first, element.topic_id  # type: ignore[attr-defined]
    return repr(first)


def names_something_twice(message: Any) -> bool:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        elements = value if isinstance(value, list) else [value]
        if field.is_array and len({subject(each) for each in elements}) < len(elements):
            return True
        if field.struct is not None and any(each is not None and names_something_twice(each) for each in elements):
            return True
    return False


def harmless(request: Any) -> None:
    """Keeps what all episodes share as it is: the brokers and their configs, and the topics of the coordinators."""
    if isinstance(request, AlterUserScramCredentialsRequest):
        _take_back_what_differs(request)
    if isinstance(request, AlterClientQuotasRequest):
        names = [each.entity_name for entry in request.entries for each in entry.entity]
        # A default would throttle both brokers' client; of an entity that is named twice Kafka alters the first.
        request.validate_only |= None in names or names_something_twice(request)
    state = getattr(request, "replica_state", None)
    if hasattr(request, "session_id") and (request.replica_id != -1 or (state is not None and state.replica_id != -1)):
        # Who is no broker is refused here, before its session is looked at.
        request.session_id = 0
    if hasattr(request, "broker_id") and request.broker_id == 1:
        request.broker_id = 7
    resources = getattr(request, "resources", [])
    if any(getattr(each, "resource_type", None) in RESOURCES_OF_ALL for each in resources) and hasattr(
        request, "validate_only"
    ):
        request.validate_only = True


def _take_back_what_differs(request: Any) -> None:
    """Both brokers are to go on with the same users: no user has two mechanisms in one request, and salted passwords
    have the sizes that both take."""
    alterations = (*request.upsertions, *request.deletions)
    mechanisms = {each.name: each.mechanism for each in alterations}
    for each in alterations:
        each.mechanism = mechanisms[each.name]
    for each in request.upsertions:
        each.salted_password = bytes(64 if each.mechanism == SHA_512 else 32)
