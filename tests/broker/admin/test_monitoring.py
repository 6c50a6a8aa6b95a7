"""The dashboard and the alerts that are shipped name only what is exported, and each alert has its runbook."""

import json
import re
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from ottla.broker.admin.metrics.families import FAMILIES, HISTOGRAM
from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.facts import Cause

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "examples/monitoring"
ALERTS = (MONITORING / "alerts.yml").read_text()
NAMES = {family.name: family for family in FAMILIES}
_METRIC = re.compile(r"\b((?:ottla|process)_[a-z0-9_]+)(\{[^}]*\})?")
_LABEL = re.compile(r'(\w+)(=~?|!=)"([^"]*)"')
# Prometheus gives these to what it scrapes.
OF_TARGET = {"job", "instance"}


def wrong_in(expression: str) -> list[str]:
    """The metrics that no broker exports, and labels that they do not have."""
    wrong = []
    for name, selector in _METRIC.findall(expression):
        base = re.sub("_(bucket|sum|count)$", "", name)
        family = NAMES.get(name) or NAMES.get(base)
        if family is None or (name not in NAMES and family.kind != HISTOGRAM):
            wrong.append(name)
            continue
        known = {*family.labels, *OF_TARGET, *([] if family.of_process else ["broker"])}
        wrong += [f"{name} has no {label}" for label, _, _ in _LABEL.findall(selector) if label not in known]
    return wrong


def expressions() -> list[str]:
    dashboard = json.loads((MONITORING / "ottla.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return found + [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]


def alerts() -> dict[str, str]:
    """Each alert's rule as text."""
    return {text.partition("\n")[0].strip(): text for text in ALERTS.split("- alert:")[1:]}


def test_dashboard_names_only_what_is_exported() -> None:
    found = expressions()
    assert len(found) > 35
    assert [(each, wrong_in(each)) for each in found if wrong_in(each)] == []


def test_alerts_name_only_what_is_exported() -> None:
    assert len(alerts()) >= 15
    assert {name: wrong_in(rule) for name, rule in alerts().items() if wrong_in(rule)} == {}
    for name, rule in alerts().items():
        assert name == "OttlaDown" or _METRIC.search(rule), name


def test_check_finds_an_unknown_metric_and_label() -> None:
    assert wrong_in('ottla_nothing{broker="1"} > 0') == ["ottla_nothing"]
    assert wrong_in('ottla_controller_active{group="g"}') == ["ottla_controller_active has no group"]
    assert wrong_in("ottla_controller_active_bucket") == ["ottla_controller_active_bucket"]


def test_causes_and_states_of_alerts_are_those_of_the_broker() -> None:
    causes = {value for _, _, value in _LABEL.findall(ALERTS) if " " in value}
    assert causes == {Cause.SESSION_EXPIRED.value, Cause.NOT_REJOINED.value}
    states = {state.value for state in GroupState}
    assert {"PreparingRebalance", "CompletingRebalance"} <= states


@pytest.mark.parametrize("name", alerts())
def test_alert_has_a_level_a_summary_and_a_runbook(name: str) -> None:
    rule = alerts()[name]
    assert re.search(r"severity: (page|ticket|info)", rule)
    assert "summary: " in rule
    assert f"runbook_url: docs/runbooks.md#{name.lower()}\n" in rule
    assert f"\n## {name}\n" in (ROOT / "docs/runbooks.md").read_text()


def test_dashboard_is_the_one_that_its_table_makes() -> None:
    assert json.loads((MONITORING / "ottla.json").read_text()) == _script().dashboard()


def _script() -> ModuleType:
    spec = util.spec_from_file_location("make_dashboard", MONITORING / "make_dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["make_dashboard"] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
