"""What is said of a broker's health, decided on variables (docs/operators.md §3)."""

import pytest

from ottla.broker.admin.health import (
    BrokerLife,
    CheckHistory,
    Finding,
    HealthFacts,
    LifePhase,
    liveness,
    readiness,
    startup,
)
from ottla.cluster.image import BrokerState
from ottla.storage.recovery import RecoveryProgress

WELL = HealthFacts(BrokerState.ACTIVE, logs=10)
STALL_MS = 30_000


def wrong(facts: HealthFacts | None, phase: LifePhase = LifePhase.SERVING) -> dict[str, bool]:
    """The checks that are not ok, and whether each makes the broker unready."""
    life = BrokerLife(phase)
    return {each.name: each.fatal for each in readiness(life, facts, disk_stall_ms=STALL_MS) if not each.ok}


def test_broker_that_serves_and_is_active_is_ready() -> None:
    assert wrong(WELL) == {}


@pytest.mark.parametrize("phase", [LifePhase.STARTING, LifePhase.STOPPING, LifePhase.ENDED])
def test_broker_that_does_not_serve_is_not_ready(phase: LifePhase) -> None:
    assert wrong(WELL, phase) == {"serving": True}
    assert wrong(None, phase) == {"serving": True}


@pytest.mark.parametrize("state", [None, BrokerState.FENCED, BrokerState.STARTING, BrokerState.STOPPING])
def test_broker_that_is_not_active_is_not_ready(state: BrokerState | None) -> None:
    assert wrong(WELL._replace(state=state)) == {"membership": True}


def test_broker_with_a_failed_data_directory_is_not_ready() -> None:
    assert wrong(WELL._replace(failed_logs=10)) == {"data": True, "logs": False}
    assert wrong(WELL._replace(has_failed_checkpoint=True)) == {"data": True}
    assert wrong(WELL._replace(oldest_disk_call_ms=STALL_MS)) == {"disk": True}
    assert wrong(WELL._replace(not_caught_up=3)) == {"caught up": True}
    assert wrong(WELL._replace(not_caught_up=0)) == {}


def test_what_others_have_to_mend_is_degraded_and_ready() -> None:
    assert wrong(WELL._replace(store_answers=False)) == {"metadata store": False}
    assert wrong(WELL._replace(failed_logs=9)) == {"logs": False}
    assert wrong(WELL._replace(loading_coordinators=2)) == {"coordinators": False}
    assert wrong(WELL._replace(disk_free_ratio=0.09)) == {"disk space": False}
    assert wrong(WELL._replace(disk_free_ratio=0.11)) == {}
    assert wrong(WELL._replace(is_dropping_events=True)) == {"events": False}


def test_startup_reports_how_far_recovery_is() -> None:
    life = BrokerLife()
    assert startup(life) == Finding("started", False, "the broker is starting")
    life.recovery.logs_total, life.recovery.logs_opened = 1000, 412
    life.recovery.bytes_checked = 3_100_000_000
    assert startup(life) == Finding("started", False, "recovering logs: 412 of 1,000, 3.1 GB checked")
    life.enter(LifePhase.SERVING)
    life.enter(LifePhase.STOPPING)
    assert startup(life).ok


def test_only_a_broker_that_has_ended_is_not_alive() -> None:
    assert [liveness(BrokerLife(phase)).ok for phase in LifePhase] == [True, True, True, False]


def test_check_reports_since_when_it_says_so() -> None:
    history = CheckHistory()
    good, bad = Finding("data", True, ""), Finding("data", False, "")
    ages = [history.checks([each], now)[0].since_ms for each, now in [(good, 5), (good, 9), (bad, 10), (bad, 30)]]
    assert ages == [0, 4, 0, 20]


def test_progress_is_that_of_the_opened_directory() -> None:
    progress = RecoveryProgress()
    assert (progress.logs_total, progress.logs_opened, progress.bytes_checked) == (0, 0, 0)
