"""What breaks a promise, and which attack it is counted for."""

import math
from typing import Any

import pytest

from tests.histories.events import Acknowledged, FinalLog, Sent
from tests.siege.attacks.attack import AT_A_TIME, Attack
from tests.siege.attacks.connections import Connections
from tests.siege.attacks.full_disk import FullDisk
from tests.siege.attacks.half_open import HalfOpen
from tests.siege.attacks.request_floods import SmallRequests
from tests.siege.broker import ALLOWED_TO_THE_END, Usage
from tests.siege.verdict import Report, Round, Window, percentile, table

MIB = 1 << 20
TOO_FEW = "the attack held 2,958 connections at a time, not 5,000"
COUNTS = {"connections": 5, "unauthenticated connections": 0, "parked fetches": 2, "held bytes": 0, "topics": 3}


def usage(descriptors: int = 80, **counts: int) -> Usage:
    return Usage(50 * MIB, descriptors, COUNTS | {name.replace("_", " "): count for name, count in counts.items()})


def round_of(**fields: Any) -> Round:
    """Of an attack from second 1 to second 2, after a second of quiet."""
    given: dict[str, Any] = {
        "attack": SmallRequests,
        "quiet": Window(0, 1_000_000),
        "loud": Window(1_000_000, 2_000_000),
        "done": {},
        "before": usage(),
        "after": usage(),
        "peak_bytes": 100 * MIB,
        "longest_step_ms": 3,
        "log": [],
        "failures": [],
        "quiet_ms": [1.0],
        "loud_ms": [1.0],
        "sent": 10,
        "acknowledged": 10,
    }
    return Round(**(given | fields))


def sent(at_us: int, number: int, producer: str = "probe.0") -> Sent:
    return Sent(at_us, producer, "t", 0, number, f"{producer}/{number}")


def test_a_round_in_which_all_went_well_breaks_nothing() -> None:
    assert list(round_of().broken(512 * MIB)) == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"lost": 2}, "2 acknowledged records are lost"),
        ({"sessions_lost": 1}, "1 sessions were lost"),
        ({"peak_bytes": 600 * MIB}, "600 MiB were resident, 512 MiB are allowed"),
        ({"sent": 1_000, "acknowledged": 989}, "11 of 1,000 records were not acknowledged"),
        ({"sent": 0, "acknowledged": 0}, "no record was sent"),
        ({"loud_ms": [6.0]}, "p99 of produce is 6.0 times what it was before, 5 are allowed"),
        ({"loud_ms": [1.0, math.inf]}, "p99 of produce is inf times what it was before, 5 are allowed"),
        ({"loud_ms": []}, "the probe sent no record during the attack"),
        ({"quiet_ms": []}, "p99 of produce is not known before the attack"),
        ({"quiet_ms": [1.0, math.inf]}, "p99 of produce is not known before the attack"),
        ({"after": usage(connections=8)}, "not released: 3 connections"),
        ({"after": usage(parked_fetches=100)}, "not released: 98 parked fetches"),
        ({"after": usage(descriptors=200)}, "not released: 120 descriptors"),
        ({"failures": ["it fell over"]}, "it fell over"),
    ],
)
def test_each_broken_promise_is_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert list(round_of(**fields).broken(512 * MIB)) == [sentence]


@pytest.mark.parametrize(("more", "kept"), [(16 * MIB, []), (17 * MIB, [f"{17 * MIB} bytes in use"])])
def test_memory_in_use_is_to_be_given_back_in_the_end(more: int, kept: list[str]) -> None:
    names = {name.replace(" ", "_"): 0 for name in ALLOWED_TO_THE_END}
    before, after = usage(**names), usage(**names | {"bytes_in_use": more})

    assert after.kept_since(before, to_the_end=True) == kept
    assert after.kept_since(before) == []


def test_one_percent_of_records_may_stay_in_doubt() -> None:
    assert list(round_of(sent=1_000, acknowledged=990).broken(512 * MIB)) == []


def test_records_that_are_never_acknowledged_wait_for_ever() -> None:
    report = Report(512 * MIB, rounds=[round_of()])

    report.fill([sent(500_000, 0), sent(1_500_000, 1)], {}, [])

    (found,) = report.rounds
    assert (found.quiet_ms, found.loud_ms) == ([math.inf], [math.inf])
    assert list(found.broken(512 * MIB, judges_latency=False)) == [
        "1 of 1 records were not acknowledged",
        "p99 of produce is not known before the attack",
    ]


def test_an_attack_that_may_delay_is_not_held_to_p99() -> None:
    slow = {"quiet_ms": [1.0], "loud_ms": [100.0]}

    assert list(round_of(attack=FullDisk, acknowledged=0, **slow).broken(512 * MIB)) == []
    assert list(round_of(**slow).broken(512 * MIB, judges_latency=False)) == []


@pytest.mark.parametrize("attack", [HalfOpen, Connections])
@pytest.mark.parametrize(("reached", "breaks"), [(2_958, [TOO_FEW]), (5_000, [])])
def test_an_attack_that_was_too_small_proves_nothing(attack: type[Attack], reached: int, breaks: list[str]) -> None:
    found = round_of(attack=attack, done={AT_A_TIME: reached})

    assert list(found.broken(512 * MIB)) == breaks
    assert list(found.broken(512 * MIB, judges_latency=False)) == []


def test_records_are_counted_for_the_attack_that_they_met() -> None:
    quiet, loud, lost, in_doubt = sent(500_000, 0), sent(1_500_000, 1), sent(1_600_000, 2), sent(1_700_000, 3)
    other = sent(1_500_000, 0, "confluent")
    acknowledged = [Acknowledged(each.at_us + 2_000, each.value, 0) for each in (quiet, loud, lost, other)]
    report = Report(512 * MIB, rounds=[round_of()])

    report.fill(
        [quiet, loud, lost, in_doubt, other, *acknowledged],
        {("t", 0): FinalLog(0, ((0, quiet.value), (1, loud.value), (2, other.value)))},
        [(500_000, "before"), (1_500_000, "heartbeat answered 25")],
    )

    (found,) = report.rounds
    assert (found.sent, found.acknowledged, found.lost, found.sessions_lost) == (4, 3, 1, 1)
    assert (found.quiet_ms, found.loud_ms, found.ratio) == ([2.0], [2.0, 2.0, math.inf], math.inf)


def test_sessions_of_the_attackers_own_groups_may_expire() -> None:
    log = [{"event": "SessionExpired", "group_id": group} for group in ("storm", "siege-giant", "siege-probe")]
    report = Report(512 * MIB, rounds=[round_of(log=log)])

    report.fill([], {}, [])

    assert report.rounds[0].sessions_lost == 2


def test_percentiles_are_values_that_were_seen() -> None:
    assert [percentile(range(100), percent) for percent in (50, 99, 100)] == [50, 99, 99]
    assert percentile([], 99) == 0


def test_the_table_has_a_line_for_each_attack() -> None:
    lines = list(table([round_of(), round_of(attack=FullDisk)]))

    assert [line.split()[0] for line in lines] == ["attack", "small-requests", "full-disk"]
    assert len({len(line.split("  ")) > 5 for line in lines}) == 1
