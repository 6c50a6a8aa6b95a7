"""Fault rules: which requests (`match`) get what (`do`), and how often. JSON is the schema.

    {"id": "third-commit-fails",
     "match": {"api": "OffsetCommit", "group": "shop", "topic": "orders", "partition": [0, 1], "nth": 3},
     "do": {"error": "REBALANCE_IN_PROGRESS"},
     "times": 1}

All given fields of a match must hold; a list is "any of"; text takes `*` and `?`, and `/…/` is a regular expression. A
rule that could never hit is refused when it is made.
"""

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from ottla.broker.server.apis import APIS, Api
from ottla.protocol.schema import Field, fields_of
from ottla.testing.faults.actions import Action, Corrupt, Drop, Error, Rewrite, ThrottleClient, parse_action
from ottla.testing.faults.error_codes import codes_of
from ottla.testing.faults.error_places import has_inner_partitions, place_of
from ottla.testing.faults.request_units import levels_of, unit_fields
from ottla.testing.faults.rule_values import (
    Moment,
    RuleError,
    as_list,
    is_whole_number,
    nearest,
    parse_flag,
    parse_moment,
    parse_nth,
    parse_numbers,
    parse_patterns,
    parse_versions,
)

TEXT_FIELDS: Final = ("client_id", "software", "principal", "listener", "address")
REQUEST_TEXTS: Final = ("topic", "topic_id", "group", "member", "instance", "transactional_id", "key")
NUMBER_FIELDS: Final = ("connection", "node")
REQUEST_NUMBERS: Final = ("partition", "acks")
REQUEST_FIELDS: Final = (*REQUEST_TEXTS, *REQUEST_NUMBERS)
CHANCE_FIELDS: Final = ("nth", "nth_of", "after", "until", "probability", "when")
RULE_FIELDS: Final = ("id", "times", "optional", "force")
"""Of a rule, beside `match` and `do`."""
MATCH_FIELDS: Final = (
    "api", "version", "peer", *TEXT_FIELDS, *NUMBER_FIELDS, *REQUEST_FIELDS, *CHANCE_FIELDS
)  # fmt: skip
PEERS: Final = ("client", "broker")
NTH_OF: Final = ("connection", "client", "partition")
UNLIMITED: Final = "unlimited"
_LOWEST: Final = {"partition": 0, "node": 0, "connection": 1}
_INT_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Of the whole request: what a rule calls it, and the fields of requests that have it.
_TOP_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "group": ("group_id",),
    "member": ("member_id",),
    "instance": ("group_instance_id",),
    "transactional_id": ("transactional_id", "v3_and_below_transactional_id"),
    "acks": ("acks",),
    "key": ("key",),
}
FIND_COORDINATOR: Final = "FindCoordinator"
# What a client logs in with is not its connection's to delay.
_LOGIN_APIS: Final = frozenset({"SaslHandshake", "SaslAuthenticate"})
_LOGIN_ACTIONS: Final = frozenset({"error", "observe"})
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "group": ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"),
    "producer": ("Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"),
    "admin": tuple(
        api.name
        for api in APIS.values()
        if api.name.startswith(("Create", "Delete", "Describe", "Alter", "IncrementalAlter", "List", "Elect", "Update"))
        and api.name != "ListOffsets"
    ),
    "any": tuple(api.name for api in APIS.values() if api.name not in _LOGIN_APIS),
}
_NAMED: Final = {api.name: api for api in APIS.values()}


@dataclass(frozen=True)
class Rule:
    """One rule, checked: make it by `parse_rule`."""

    id: str
    match: Mapping[str, Any]
    """As JSON has it, but for `when`, a function."""
    do: Action
    times: int | None
    """How many requests it acts on; None: all."""
    optional: bool
    """Not an error where it never acts."""
    force: bool
    """The error is one that Kafka does not answer to these APIs."""
    apis: tuple[Api, ...]
    """Those whose requests it can hit."""

    def to_json(self) -> dict[str, Any]:
        """As `parse_rule` takes it. Raises RuleError for what is Python only."""
        if "when" in self.match:
            raise RuleError("when: a function is Python only")
        written: dict[str, Any] = {"id": self.id, "match": dict(self.match), "do": self.do.to_json()}
        if self.times != _default_times(self.do):
            written["times"] = UNLIMITED if self.times is None else self.times
        return written | {name: True for name in ("optional", "force") if getattr(self, name)}

    def may_hit(self, api: Api, version: int) -> bool:
        """Whether requests of this API and version can match, and be treated so."""
        versions = self.match.get("version")
        if api not in self.apis or (versions is not None and not parse_versions(versions)(version)):
            return False
        return set(self.match).intersection(REQUEST_FIELDS) <= fields_in(api, version) and _can_act(
            self.do, self.named_units(api), api, version
        )

    def named_units(self, api: Api) -> frozenset[str]:
        """The fields of the match that choose among the units of a request."""
        return _named_units(self.match, api)


def parse_rule(given: Mapping[str, Any], *, new_id: Callable[[], str], known_ids: Iterable[str] = ()) -> Rule:
    """A rule of JSON; `do` may be an Action. `new_id` names one without id, `known_ids` are those of other rules.
    Raises RuleError."""
    described = {str(name): value for name, value in given.items()}
    for name in described:
        if name not in ("match", "do", *RULE_FIELDS):
            hint = f"; it belongs into match: {{{name}: …}}" if name in MATCH_FIELDS else ""
            raise RuleError(f"a rule has no {name!r}" + (hint or nearest(name, ("match", "do", *RULE_FIELDS))))
    if "do" not in described:
        raise RuleError("a rule needs do: what happens to the requests that match")
    match, action = described.get("match", {}), parse_action(described["do"])
    if not isinstance(match, Mapping):
        raise RuleError(f"match: {match!r}, expected an object")
    checked = _checked_match(dict(cast("Iterable[tuple[Any, Any]]", match.items())), set(known_ids))
    force = parse_flag("force", described.get("force", False))
    apis = _apis(checked, action, force=force)
    if isinstance(action, Rewrite):
        _check_rewrite(action, apis)
    return Rule(
        id=_identifier(described, new_id),
        match=checked,
        do=action,
        times=_times(described.get("times"), action),
        optional=parse_flag("optional", described.get("optional", False)),
        force=force,
        apis=apis,
    )


@cache
def fields_in(api: Api, version: int) -> frozenset[str]:
    """What a rule can match of the requests of an API in one version."""
    found = {*top_fields(api, version)}
    found |= {key.field for level in levels_of(api, version) for key in level.keys if key.field}
    if "topic_id" in found:
        found.add("topic")
    if api.name == FIND_COORDINATOR:
        found |= {"group", "transactional_id"}
    if has_inner_partitions(api):
        found.add("partition")
    return frozenset(found)


def top_fields(api: Api, version: int) -> dict[str, str]:
    """Of the whole request: what a rule can match, and the field of the request that has it in this version."""
    return _top_fields(api.key, version)


@cache
def _top_fields(key: int, version: int) -> dict[str, str]:
    api = APIS[key]
    there = {each.name for each in fields_of(api.request_class()) if version in each.versions}
    return {name: field for name, fields in _TOP_FIELDS.items() for field in fields if field in there}


def _checked_match(given: Mapping[Any, Any], known_ids: set[str]) -> dict[str, Any]:
    match = {str(name): value for name, value in given.items()}
    for name, value in match.items():
        if name not in MATCH_FIELDS:
            raise RuleError(f"match has no {name!r}{nearest(name, MATCH_FIELDS)}")
        match[name] = _checked_field(name, value, known_ids)
    if "nth_of" in match and "nth" not in match:
        raise RuleError("nth_of: needs nth")
    return match


def _checked_field(name: str, value: Any, known_ids: set[str]) -> Any:
    if name in TEXT_FIELDS or name in REQUEST_TEXTS:
        parse_patterns(name, value)
    elif name in NUMBER_FIELDS or name in REQUEST_NUMBERS:
        parse_numbers(name, value)
        if name in _LOWEST and min(as_list(value)) < _LOWEST[name]:
            raise RuleError(f"{name}: {value!r}, expected {_LOWEST[name]} or more")
    elif name == "version":
        parse_versions(value)
    elif name == "nth":
        parse_nth(value)
    elif name in ("peer", "nth_of"):
        allowed = PEERS if name == "peer" else NTH_OF
        if value not in allowed:
            raise RuleError(f"{name}: {value!r}, expected {' or '.join(allowed)}")
    elif name in ("after", "until"):
        return _checked_moment(name, value, known_ids)
    elif name == "probability" and (
        isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1
    ):
        raise RuleError(f"probability: {value!r}, expected a number above 0 and up to 1")
    elif name == "when" and not callable(value):
        raise RuleError("when: expected a function that takes the request")
    return value


def _checked_moment(name: str, value: Any, known_ids: set[str]) -> str:
    if isinstance(value, datetime.timedelta):
        value = f"{value // datetime.timedelta(milliseconds=1)}ms"
    elif isinstance(value, datetime.datetime):
        value = value.isoformat()
    moment = parse_moment(name, value)
    if moment.kind is Moment.RULE and value not in known_ids:
        raise RuleError(f"{name}: there is no rule {value!r}{nearest(str(value), known_ids)}")
    return str(value)


def _apis(match: Mapping[str, Any], action: Action, *, force: bool) -> tuple[Api, ...]:
    """The APIs that the rule is about. Raises RuleError where none is left."""
    asked = _named_apis(match.get("api", "any"))
    wanted = set(match).intersection(REQUEST_FIELDS)
    apis = [api for api in asked if _served_versions(api, match)]
    if not apis:
        spans = ", ".join(f"{api.name} {api.min_version}-{api.max_version}" for api in asked[:5])
        raise RuleError(f"version: {match['version']!r} is not served, only {spans}")
    having = [api for api in apis if any(wanted <= fields_in(api, each) for each in _served_versions(api, match))]
    if not having:
        there = sorted({name for api in apis for each in _served_versions(api, match) for name in fields_in(api, each)})
        lacking = ", ".join(sorted(wanted - set(there))) or ", ".join(sorted(wanted)) + " together"
        raise RuleError(f"{_names(apis)} has no {lacking}, only {', '.join(there) or 'fields that no rule matches'}")
    if isinstance(action, Error) and not force:
        answering = [api for api in having if action.error_code in codes_of(api)]
        if not answering:
            codes = sorted(code.name for api in having[:1] for code in codes_of(api))
            raise RuleError(
                f"{_names(having)} never answers {action.code}, only {', '.join(codes)}; force: true injects it"
            )
        having = answering
    acting = [api for api in having if any(_acts(match, action, api, each) for each in _served_versions(api, match))]
    if not acting:
        raise RuleError(_why_not(action, having, match))
    return tuple(acting)


def _acts(match: Mapping[str, Any], action: Action, api: Api, version: int) -> bool:
    return not _drops_no_response(action, match) and _can_act(action, _named_units(match, api), api, version)


def _named_units(match: Mapping[str, Any], api: Api) -> frozenset[str]:
    fields = unit_fields(api)
    return frozenset(match) & (fields | {"partition"} if has_inner_partitions(api) else fields)


def _drops_no_response(action: Action, match: Mapping[str, Any]) -> bool:
    return isinstance(action, Drop) and action.what == "response" and match.get("acks") in (0, [0])


def _can_act(action: Action, named: frozenset[str], api: Api, version: int) -> bool:
    if api.name in _LOGIN_APIS:
        is_at_once = action.key in _LOGIN_ACTIONS or getattr(action, "what", "") == "request"
        return is_at_once and not getattr(action, "after", False)
    response = api.response_class()
    names = {each.name for each in fields_of(response) if version in each.versions}
    match action:
        case Error():
            return place_of(api, version, action.error_code, named, at_top=action.at == "top") is not None
        case ThrottleClient():
            return "throttle_time_ms" in names
        case Corrupt(what="crc"):
            return api.name == "Fetch"
        case _:
            return True


def _why_not(action: Action, apis: list[Api], match: Mapping[str, Any]) -> str:
    if _drops_no_response(action, match):
        return "drop: a produce request with acks=0 has no response; disconnect it instead"
    if {api.name for api in apis} <= _LOGIN_APIS:
        return f"{_names(apis)}: only error, drop: request and observe; a login cannot be held up here"
    if isinstance(action, Error):
        return f"{_names(apis)} has no place for an error"
    return f"{action.key}: not of {_names(apis)}, which has nothing of the kind in its response"


def _named_apis(given: Any) -> list[Api]:
    found: list[Api] = []
    for each in as_list(given):
        if isinstance(each, str) and each in FAMILIES:
            found += [_NAMED[name] for name in FAMILIES[each]]
        elif is_whole_number(each):
            if each not in APIS:
                raise RuleError(f"api: {each} is not served")
            found.append(APIS[each])
        elif isinstance(each, str) and each in _NAMED:
            found.append(_NAMED[each])
        else:
            raise RuleError(f"api: {each!r} is not served{nearest(str(each), [*_NAMED, *FAMILIES])}")
    return found


def _served_versions(api: Api, match: Mapping[str, Any]) -> list[int]:
    holds = parse_versions(match["version"]) if "version" in match else None
    served = range(api.min_version, api.max_version + 1)
    return [version for version in served if holds is None or holds(version)]


def _names(apis: list[Api]) -> str:
    return apis[0].name if len(apis) == 1 else f"none of {', '.join(api.name for api in apis[:6])}"


def _identifier(described: Mapping[str, Any], new_id: Callable[[], str]) -> str:
    given = described.get("id")
    if given is None:
        return new_id()
    if not isinstance(given, str) or not given or parse_moment("id", given).kind is not Moment.RULE:
        raise RuleError(f"id: {given!r}, expected a name")
    return given


def _times(given: object, action: Action) -> int | None:
    if given is None:
        return _default_times(action)
    if given == UNLIMITED:
        return None
    if not is_whole_number(given) or given < 1:
        raise RuleError(f"times: {given!r}, expected a number of requests from 1 on, or {UNLIMITED!r}")
    return given


def _default_times(action: Action) -> int | None:
    return 1 if action.is_terminal else None


def _check_rewrite(action: Rewrite, apis: tuple[Api, ...]) -> None:
    for path, value in action.values.items():
        if path == "versions":
            _check_rewritten_versions(value, apis)
            continue
        fields = [found for api in apis if (found := _field_at(api, path)) is not None]
        if not fields:
            raise RuleError(f"rewrite: the response of {_names(list(apis))} has no {path!r}")
        if not any(_fits(field, value) for field in fields):
            raise RuleError(f"rewrite: {value!r} is no {fields[0].type_name}, which {path!r} is")


def _check_rewritten_versions(value: object, apis: tuple[Api, ...]) -> None:
    if {api.name for api in apis} != {"ApiVersions"}:
        raise RuleError("rewrite: versions are those that ApiVersions says: match {api: ApiVersions}")
    if not isinstance(value, Mapping):
        raise RuleError(f"rewrite: versions: {value!r}, expected an object of API names and ranges such as '4-11'")
    for name, span in dict(cast("Iterable[tuple[Any, Any]]", value.items())).items():
        if name not in _NAMED:
            raise RuleError(f"rewrite: versions: {name!r} is not served{nearest(str(name), _NAMED)}")
        if not isinstance(span, str) or not re.fullmatch(r"(\d+(-\d+)?)?", span):
            raise RuleError(f"rewrite: versions: {span!r}, expected a range such as '4-11', or '' for none")


def _field_at(api: Api, path: str) -> Field | None:
    owner: Any = api.response_class()
    found: Field | None = None
    for name in path.split("."):
        found = None if owner is None else next((each for each in fields_of(owner) if each.name == name), None)
        if found is None:
            return None
        owner = found.struct
    return found


def _fits(field: Field, value: object) -> bool:
    if field.is_array or field.struct is not None:
        return False
    if field.type_name == "bool":
        return isinstance(value, bool)
    if field.type_name == "string":
        return isinstance(value, str) or (value is None and bool(field.nullable.last >= field.nullable.first))
    if field.type_name in _INT_BITS:
        bits = _INT_BITS[field.type_name]
        return is_whole_number(value) and -(1 << (bits - 1)) <= value < 1 << (bits - 1)
    return False
