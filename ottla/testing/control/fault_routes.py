"""Fault rules over HTTP. Functions (`when`, `call`) do not come in this way: no code does."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final, cast

from ottla.testing.control.documents import FaultDocument, FaultList, Released
from ottla.testing.control.problems import Problem, wrong_value
from ottla.testing.control.questions import ReleaseBody
from ottla.testing.control.router import ControlCall, QueryField, Row
from ottla.testing.control.service import ControlService
from ottla.testing.faults.rule_text import parse_line

RULES_MAX: Final = 1000
PYTHON_ONLY: Final = ("when", "call")


def _faults(service: ControlService, _call: ControlCall) -> FaultList:
    return FaultList([FaultDocument.of(each) for each in service.own_faults()])


def _fault(service: ControlService, call: ControlCall) -> FaultDocument:
    return FaultDocument.of(service.fault(call.path["id"]), call.query["hits"])


def _add(service: ControlService, call: ControlCall) -> FaultList:
    """One rule, a list of rules, or `{"id": prefix, "rules": [...]}`; all of them, or none where one is wrong. Rules
    without an id get the prefix and a number."""
    prefix, rules = _rules(call.body)
    if prefix is None and service.scope.prefix:
        prefix = f"{service.scope.prefix}fault"
    known = {each.id for each in service.faults}
    free = (f"{prefix}-{number}" for number in count(1) if f"{prefix}-{number}" not in known)
    given: list[Mapping[str, Any] | str] = []
    for each in rules:
        rule = parse_line(each) if isinstance(each, str) else each
        service.scope.check_rule(rule)
        given.append(rule if prefix is None or "id" in rule else {"id": next(free), **rule})
    added = service.faults.add_all(given)
    for fault in added:
        service.events.watch(fault)
        service.events.add("fault_added", fault=fault.id)
    return FaultList([FaultDocument.of(each) for each in added])


def _rules(body: Any) -> tuple[str | None, Sequence[Mapping[str, Any] | str]]:
    """What rules without an id are called, and the rules. Raises Problem."""
    prefix: Any = None
    rules: Any = cast("Any", body) if isinstance(body, list) else [body]
    if isinstance(body, dict) and "rules" in body:
        whole = cast("dict[str, Any]", body)
        for name in whole:
            if name not in ("id", "rules"):
                raise wrong_value(name[:60], "beside rules there is id, what their ids begin with")
        prefix, rules = whole.get("id"), whole["rules"]
    if prefix is not None and (not isinstance(prefix, str) or not prefix):
        raise wrong_value("id", "expected what the ids of the rules begin with")
    if not isinstance(rules, list) or not rules:
        raise wrong_value("rules", "expected rules")
    given = cast("Any", rules)
    if len(given) > RULES_MAX:
        raise wrong_value("rules", f"{len(given)} rules, at most {RULES_MAX}")
    for index, each in enumerate(given):
        if not isinstance(each, str | dict):
            raise wrong_value(f"rules[{index}]", "expected an object, or a line of text")
        if isinstance(each, dict) and _has_code(cast("dict[str, Any]", each)):
            raise wrong_value(f"rules[{index}]", f"{' and '.join(PYTHON_ONLY)} are functions, for tests in Python")
    return prefix, given


def _has_code(rule: Mapping[str, Any]) -> bool:
    parts = (rule.get("match"), rule.get("do"))
    return any(name in cast("Any", part) for part in parts if isinstance(part, dict) for name in PYTHON_ONLY)


def _remove(service: ControlService, call: ControlCall) -> FaultList:
    """Gives it as it was; it acts no more, and what it holds goes on."""
    fault = service.fault(call.path["id"])
    fault.remove()
    service.events.add("fault_removed", fault=fault.id)
    return FaultList([FaultDocument.of(fault)])


def _release(service: ControlService, call: ControlCall) -> Released:
    body: ReleaseBody = call.body
    fault = service.fault(call.path["id"])
    if body.count is not None and body.count < 1:
        raise Problem(400, "wrong-value", f"count: {body.count}, expected 1 or more", field="count")
    return Released(fault.release(body.count))


_HITS: Final = (QueryField("hits", "Show so many of its last hits.", 0),)
# fmt: off
FAULT_ROWS: Final = (
    Row("GET", "/v1/faults", "All rules.", _faults, answer=FaultList, needs_brokers=False),
    Row("POST", "/v1/faults", "Add rules, all or none.", _add, Any, FaultList, status=201, needs_brokers=False),
    Row("GET", "/v1/faults/{id}", "A rule.", _fault, answer=FaultDocument, query=_HITS, needs_brokers=False),
    Row("DELETE", "/v1/faults/{id}", "Remove a rule.", _remove, answer=FaultList, needs_brokers=False),
    Row("POST", "/v1/faults/{id}/release", "Let requests go on that a rule holds.", _release, ReleaseBody, Released,
        needs_brokers=False),
)
# fmt: on
