"""Each alert fires on a fault that is made up for it, within its time, and no alert fires without one.

promtool is asked for the same where it is installed.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.broker.admin.promql import NAME, Labels, Samples, evaluate

ALERTS = Path(__file__).parents[3] / "examples/monitoring/alerts.yml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
MINUTES = 130
FAULT_AT = 60

SOUND = {
    'up{job="ottla",instance="b1"}': "1x130",
    'process_start_time_seconds{job="ottla",instance="b1"}': "0x130",
    'ottla_partitions_offline{broker="1",instance="b1"}': "0x130",
    'ottla_partitions_under_min_isr{broker="1",instance="b1"}': "0x130",
    'ottla_partitions_under_replicated{broker="1",instance="b1"}': "0x130",
    'ottla_partitions_not_preferred_leader{broker="1",instance="b1"}': "0x130",
    'ottla_partitions{broker="1",instance="b1",role="leader"}': "10x130",
    'ottla_controller_active{broker="1",instance="b1"}': "1x130",
    'ottla_metadata_session_remaining_seconds{broker="1",instance="b1"}': "8x130",
    'ottla_metadata_session_timeout_seconds{broker="1",instance="b1"}': "9x130",
    'ottla_log_directory_bytes{broker="1",instance="b1",kind="total"}': "100000x130",
    'ottla_log_directory_bytes{broker="1",instance="b1",kind="free"}': "24000x130",
    'ottla_log_failures{broker="1",instance="b1"}': "0x130",
    'ottla_group_state_seconds{broker="1",instance="b1",group="g",state="Stable"}': "0+60x130",
    'ottla_group_rebalances_total{broker="1",instance="b1",group="g",cause="member joined"}': "5+1x130",
    'ottla_group_members_removed_total{broker="1",instance="b1",group="g",cause="session expired"}': "1x130",
    'ottla_group_members_removed_total{broker="1",instance="b1",group="h",cause="did not rejoin in time"}': "3x130",
    'ottla_group_lag_seconds{broker="1",instance="b1",group="g",topic="t"}': "5x130",
    'ottla_group_verdict{broker="1",instance="b1",group="g",verdict="ok"}': "1x130",
    'ottla_group_records_lost_total{broker="1",instance="b1",group="h",topic="t"}': "7x130",
    'ottla_loop_lateness_seconds_bucket{broker="1",instance="b1",le="0.032768"}': "0+10x130",
    'ottla_loop_lateness_seconds_bucket{broker="1",instance="b1",le="0.262144"}': "0+10x130",
    'ottla_loop_lateness_seconds_bucket{broker="1",instance="b1",le="+Inf"}': "0+10x130",
    'ottla_events_dropped_total{broker="1",instance="b1"}': "0x130",
    'ottla_authentication_total{broker="1",instance="b1",listener="L",mechanism="PLAIN",result="success"}': (
        "0+6000x130"
    ),
    'ottla_authentication_total{broker="1",instance="b1",listener="L",mechanism="PLAIN",result="failure"}': "0+60x130",
}
ABSENT = "_ " * FAULT_AT


class Fault(NamedTuple):
    series: str
    values: str
    by: int
    """The minute at which the alert fires at the latest."""


FAULTS = {
    "OttlaDown": Fault('up{job="ottla",instance="b1"}', "1x59 0x70", 63),
    "OttlaRestarts": Fault(
        'process_start_time_seconds{job="ottla",instance="b1"}', "0x59 3600x4 3900x4 4200x4 4500x54", 76
    ),
    "PartitionsOffline": Fault('ottla_partitions_offline{broker="1",instance="b1"}', "0x59 2x70", 62),
    "UnderMinIsr": Fault('ottla_partitions_under_min_isr{broker="1",instance="b1"}', "0x59 2x70", 62),
    "UnderReplicated": Fault('ottla_partitions_under_replicated{broker="1",instance="b1"}', "0x59 2x70", 71),
    "NoController": Fault('ottla_controller_active{broker="1",instance="b1"}', "1x59 0x70", 62),
    "MetadataSessionAtRisk": Fault(
        'ottla_metadata_session_remaining_seconds{broker="1",instance="b1"}', "8x59 2x70", 62
    ),
    "DiskFullIn4h": Fault(
        'ottla_log_directory_bytes{broker="1",instance="b1",kind="free"}', "24000x59 24000-200x70", 100
    ),
    "LogFailed": Fault('ottla_log_failures{broker="1",instance="b1"}', "0x59 1x70", 60),
    "GroupStuck": Fault(
        'ottla_group_state_seconds{broker="1",instance="b1",group="g",state="PreparingRebalance"}',
        ABSENT + "1+60x70",
        62,
    ),
    "RebalanceStorm": Fault(
        'ottla_group_rebalances_total{broker="1",instance="b1",group="g",cause="member left"}', ABSENT + "1+2x70", 66
    ),
    "SessionExpiries": Fault(
        'ottla_group_members_removed_total{broker="1",instance="b1",group="g",cause="session expired"}',
        "1x59 1+1x70",
        64,
    ),
    "SlowRejoin": Fault(
        'ottla_group_members_removed_total{broker="1",instance="b1",group="g",cause="did not rejoin in time"}',
        ABSENT + "1x70",
        60,
    ),
    "LagTooOld": Fault('ottla_group_lag_seconds{broker="1",instance="b1",group="g",topic="t"}', "5x59 3601+60x70", 71),
    "ConsumptionStalled": Fault(
        'ottla_group_verdict{broker="1",instance="b1",group="g",verdict="stalled"}', ABSENT + "1x70", 71
    ),
    "RecordsLost": Fault(
        'ottla_group_records_lost_total{broker="1",instance="b1",group="g",topic="t"}', ABSENT + "100x70", 60
    ),
    "TransactionsLate": Fault('ottla_partitions_with_late_transactions{broker="1",instance="b1"}', "0x59 1x70", 71),
    "LoopLate": Fault(
        'ottla_loop_lateness_seconds_bucket{broker="1",instance="b1",le="0.032768"}', "0+10x59 590x70", 67
    ),
    "Unbalanced": Fault('ottla_partitions_not_preferred_leader{broker="1",instance="b1"}', "0x59 5x70", 121),
    "AuthFailures": Fault(
        'ottla_authentication_total{broker="1",instance="b1",listener="L",mechanism="PLAIN",result="failure"}',
        "0+60x59 3600+1200x70",
        70,
    ),
    "EventsDropped": Fault('ottla_events_dropped_total{broker="1",instance="b1"}', "0x59 5x70", 61),
}


def expanded(values: str) -> Iterator[float | None]:
    """promtool's notation: `a+bxn` is a value and n more of them, `_` is none."""
    for part in values.split():
        if part == "_":
            yield None
            continue
        start, _, times = part.partition("x")
        sign = "-" if "-" in start else "+"
        first, _, step = start.partition(sign)
        for number in range(int(times) + 1):
            yield float(first) + number * float(f"{sign}{step or 0}")


def samples(table: dict[str, str]) -> dict[Labels, Samples]:
    found: dict[Labels, Samples] = {}
    for series, values in table.items():
        name, _, rest = series.removesuffix("}").partition("{")
        labels = {label: value.strip('"') for label, _, value in (each.partition("=") for each in rest.split(","))}
        pairs = frozenset({NAME: name, **labels}.items())
        found[pairs] = [(60.0 * n, value) for n, value in enumerate(expanded(values)) if value is not None]
    return found


def firing(name: str, table: dict[str, str]) -> list[int]:
    """The minutes at which the alert fires, looked at once in each."""
    rule, series = RULES[name], samples(table)
    minutes = int(rule.get("for", "0m").removesuffix("m").replace("1h", "60"))
    since: int | None = None
    found = []
    for minute in range(MINUTES):
        if not evaluate(rule["expr"], series, 60.0 * minute):
            since = None
            continue
        since = minute if since is None else since
        if minute - since >= minutes:
            found.append(minute)
    return found


@pytest.mark.parametrize(("timeout_s", "remaining_s", "fires"), [(30, 9, True), (30, 11, False), (2, 1, False)])
def test_session_at_risk_is_a_third_of_the_session(timeout_s: int, remaining_s: int, fires: bool) -> None:
    labels = '{broker="1",instance="b1"}'
    table = {
        f"ottla_metadata_session_remaining_seconds{labels}": f"{remaining_s}x130",
        f"ottla_metadata_session_timeout_seconds{labels}": f"{timeout_s}x130",
    }
    assert bool(firing("MetadataSessionAtRisk", table)) == fires


@pytest.mark.parametrize("name", RULES)
def test_alert_is_silent_where_all_is_sound(name: str) -> None:
    assert firing(name, SOUND) == []


@pytest.mark.parametrize("name", RULES)
def test_alert_fires_on_its_fault_in_time(name: str) -> None:
    fault = FAULTS[name]

    found = firing(name, {**SOUND, fault.series: fault.values})

    assert FAULT_AT <= found[0] <= fault.by


def test_broker_that_ends_again_and_again_is_an_alert() -> None:
    """It is never down for two minutes, and its age silences the alert on replicas that are missing."""
    crashing = {
        **SOUND,
        FAULTS["OttlaDown"].series: "1x3 0x0 " * 27,
        FAULTS["OttlaRestarts"].series: " ".join(f"{minute * 60}x4" for minute in range(0, 135, 5)),
        FAULTS["UnderReplicated"].series: "2x130",
    }

    assert firing("OttlaDown", crashing) == firing("UnderReplicated", crashing) == []
    assert firing("OttlaRestarts", crashing) != []


@pytest.mark.parametrize("name", ["RebalanceStorm", "SessionExpiries"])
def test_sum_of_many_groups_is_not_taken_for_one(name: str) -> None:
    """Each of hundreds rebalances now and then, and has a member that is switched off."""
    fault = FAULTS[name]
    of_one = next(each for each in ('group="g"', 'group="h"') if each in fault.series)
    assert firing(name, {**SOUND, fault.series: fault.values}) != []
    assert firing(name, {**SOUND, fault.series.replace(of_one, 'group="_other"'): "5+20x130"}) == []


def test_disk_that_is_full_and_stays_so_is_an_alert() -> None:
    """Its free room falls no more, so that no line through it predicts anything; one that was full from the first
    scrape on has never fallen."""
    free = 'ottla_log_directory_bytes{broker="1",instance="b1",kind="free"}'

    filled = firing("DiskFullIn4h", {**SOUND, free: "24000x20 24000-2000x12 0x97"})
    assert set(range(30, MINUTES - 1)) <= set(filled)
    assert set(range(10, MINUTES - 1)) <= set(firing("DiskFullIn4h", {**SOUND, free: "4000x130"}))
    assert firing("DiskFullIn4h", {**SOUND, free: "6000x130"}) == []


@pytest.mark.parametrize("name", ["SlowRejoin", "RecordsLost"])
def test_alert_is_silent_about_what_was_there_before_the_scrapes(name: str) -> None:
    """A Prometheus that has just been started finds counters that are not new."""
    fault = FAULTS[name]
    new = {series: ABSENT + values.split("x")[0] + "x70" for series, values in SOUND.items() if "+" not in values}

    assert firing(name, {**new, fault.series: fault.values}) == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_sees_the_same(tmp_path: Path) -> None:
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": list(promtool_tests())}))

    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def promtool_tests() -> Iterator[dict[str, Any]]:
    for name, fault in FAULTS.items():
        table = {**SOUND, fault.series: fault.values}
        first = firing(name, table)[0]
        yield {
            "interval": "1m",
            "name": name,
            "input_series": [{"series": series, "values": values} for series, values in table.items()],
            "promql_expr_test": [
                {"expr": _count_of(name), "eval_time": f"{first}m", "exp_samples": [{"labels": "{}", "value": 1}]},
                {"expr": _count_of(name), "eval_time": f"{first - 1}m", "exp_samples": []},
            ],
        }


def _count_of(name: str) -> str:
    return f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
