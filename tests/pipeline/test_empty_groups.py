"""A group whose only member leaves, and that has one again later: what counts as a wait, a gap or a stuck member."""

from typing import Any

import pytest

from ottla.cli.operations.group_events import cause_of
from ottla.pipeline.observatory.lag import lag
from ottla.pipeline.observatory.ownership import partition_ownership
from ottla.pipeline.observatory.rebalances import rebalances
from ottla.pipeline.observatory.stuck import stuck_members
from tests.pipeline.test_observatory import Log, rows_of, sample

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
POLL_TIMEOUT = {"cause": "member left", "client_reason": "consumer poll timeout has expired."}


@pytest.fixture(scope="module")
def events(spark: Any) -> Any:
    """From 10 s to 100 s the group is empty."""
    log = Log(spark)
    log.add(0, "state_changed", generation=0, from_state="Empty", to_state="PreparingRebalance")
    log.started(0, 0, "member joined", "a")
    log.rejoined(2000, 0, "a")
    log.generation(3000, 1, ["a"], 3000)
    log.completed(3010, 1, 10, a=[0])
    log.add(10_000, "member_removed", generation=1, member_id="a", client_id="app", **POLL_TIMEOUT)
    log.add(10_000, "rebalance_started", generation=1, member_id="a", **POLL_TIMEOUT)
    log.add(10_005, "state_changed", generation=2, from_state="PreparingRebalance", to_state="Empty")
    for at_ms in range(20_000, 100_000, 10_000):
        sample(log, at_ms, [5], [10])
    log.add(100_000, "state_changed", generation=2, from_state="Empty", to_state="PreparingRebalance")
    log.started(100_000, 2, "member joined", "b")
    log.generation(103_000, 3, ["b"], 3000)
    log.completed(103_010, 3, 10, b=[0])
    for at_ms in (104_000, 114_000):
        sample(log, at_ms, [5], [10])
    yield log.parsed()
    spark.catalog.clearCache()


def test_no_member_is_waited_for_in_the_initial_delay(events: Any) -> None:
    columns = ("generation", "cause", "outcome", "is_initial", "slowest_member_id")
    assert rows_of(rebalances(events), *columns, order="started_ms") == [
        (1, "member joined", "completed", True, None),
        (2, cause_of(POLL_TIMEOUT), "emptied", False, None),
        (3, "member joined", "completed", True, None),
    ]


def test_an_empty_group_leaves_no_partition_without_an_owner(events: Any) -> None:
    columns = ("owner", "owned_ms", "previous_owner", "unowned_ms")
    assert rows_of(partition_ownership(events), *columns, order="owned_from") == [
        ("a", 6990, None, None),
        ("b", None, "a", 5),
    ]


def test_poll_timeouts_are_named_and_empty_groups_not_stuck(events: Any) -> None:
    lags, ownership = lag(events), partition_ownership(events)
    found = stuck_members(events, lags, ownership, no_progress_ms=10_000)
    assert rows_of(found, "kind", "owner", "duration_ms", order="until") == [
        (cause_of(POLL_TIMEOUT), "a", None),
        ("no progress", "b", 10_000),
    ]
    assert rows_of(lags, "is_empty", order="sampled_ms") == [(True,)] * 8 + [(False,)] * 2
