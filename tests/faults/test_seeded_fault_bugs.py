"""Bugs of fault rules that these tests must find, seeded one at a time (TT in docs/seeded-bugs.md)."""

import asyncio
import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.testing.faults import calls, matching, requests, state
from ottla.testing.faults.actions import Hold
from ottla.testing.faults.responses import FaultyResponse
from ottla.testing.faults.state import FaultState
from ottla.testing.faulty_dispatcher import FaultyDispatcher
from tests.faults import test_faulty_clusters, test_faulty_requests, test_matching, test_waiting_requests

Patch = pytest.MonkeyPatch


def rules_replace_the_dictionary(patch: Patch) -> None:
    def apply(self: FaultyDispatcher, states: Any) -> None:
        self._states = list(states)
        self.routes = {key: self.in_place_of(route) for key, route in self.made.items()}

    patch.setattr(FaultyDispatcher, "apply", apply)


def delayed_request_keeps_its_view(patch: Patch) -> None:
    patch.setattr(calls.FaultCall, "keep_views", lambda self: None)


def times_counts_partitions(patch: Patch) -> None:
    record = FaultState._record

    def recorded(self: FaultState, call: Any, parts: Any, units: Any) -> None:
        record(self, call, parts, units)
        self.hits += len(units) - 1

    patch.setattr(FaultState, "_record", recorded)


def nth_counts_requests_that_another_field_rules_out(patch: Patch) -> None:
    match = matching.Matcher.match
    take = FaultState.take

    def taken(self: FaultState, call: Any, parts: Any, others: set[int]) -> Any:
        matcher = self._matchers.get(parts) or matching.Matcher(self.rule, parts, self.fail)
        if self._nth is not None and match(matcher, call, others) is None:
            self._count(None)
        return take(self, call, parts, others)

    patch.setattr(FaultState, "take", taken)


def error_comes_after_the_append(patch: Patch) -> None:
    patch.setattr(FaultyResponse, "take_out", lambda self: True)


def dropped_answer_shifts_the_others(patch: Patch) -> None:
    """The request is forgotten, and the next answer is sent in its place."""
    complete = requests.RequestContext.complete

    def completed(self: Any, response: Any, frame: Any = None) -> None:
        if frame == requests.NO_FRAME and type(self) is requests.RequestContext:
            frame = (4).to_bytes(4, "big") + (self.correlation_id + 1).to_bytes(4, "big")
        complete(self, response, frame)

    patch.setattr(requests.RequestContext, "complete", completed)


def hit_log_has_no_bound(patch: Patch) -> None:
    patch.setattr(state, "HITS_KEPT", None)


def near_misses_have_no_bound(patch: Patch) -> None:
    patch.setattr(matching, "VALUES_KEPT", 1 << 60)


def rules_hit_brokers_too(patch: Patch) -> None:
    patch.setattr(calls.FaultCall, "peer", property(lambda self: "client"))


def chance_of_all_tests_together(patch: Patch) -> None:
    patch.setattr(state, "Random", lambda _: random)


SEEDED: tuple[tuple[str, Callable[[Patch], None], Callable[..., Any]], ...] = (
    ("KT-2", rules_replace_the_dictionary, test_faulty_requests.test_rule_holds_for_connections_that_were_open_before),
    (
        "KT-3",
        delayed_request_keeps_its_view,
        test_faulty_requests.test_delayed_request_keeps_its_bytes_while_others_are_busy,
    ),
    (
        "KT-3",
        delayed_request_keeps_its_view,
        lambda: test_waiting_requests.test_waiting_sync_keeps_its_assignment(Hold()),
    ),
    ("KT-4", times_counts_partitions, test_matching.test_times_is_a_budget_of_requests),
    (
        "KT-4",
        nth_counts_requests_that_another_field_rules_out,
        lambda: test_matching.test_nth_counts_requests_that_match_in_all_else(3, {3}),
    ),
    ("KT-5", error_comes_after_the_append, test_faulty_requests.test_error_of_one_partition_leaves_the_other_served),
    (
        "KT-6",
        dropped_answer_shifts_the_others,
        lambda: test_faulty_requests.test_dropped_answers_leave_the_order_of_the_others("request", []),
    ),
    ("KT-14", hit_log_has_no_bound, test_matching.test_what_a_rule_remembers_is_bounded),
    ("KT-14", near_misses_have_no_bound, test_matching.test_what_a_rule_remembers_is_bounded),
    ("KT-21", rules_hit_brokers_too, test_faulty_clusters.test_rule_about_fetch_does_not_stop_replication),
    ("KT-22", chance_of_all_tests_together, test_matching.test_chance_follows_from_the_seed_and_the_rule_alone),
)


@pytest.mark.parametrize(("bug", "seed", "test"), SEEDED, ids=[f"{bug}-{seed.__name__}" for bug, seed, _ in SEEDED])
def test_a_seeded_bug_is_found(bug: str, seed: Callable[[Patch], None], test: Any, monkeypatch: Patch) -> None:
    seed(monkeypatch)

    with pytest.raises((AssertionError, TimeoutError)):
        run(test)


@pytest.mark.parametrize("test", {test: None for _, _, test in SEEDED if "lambda" not in test.__name__})
def test_without_a_seeded_bug_all_is_well(test: Any) -> None:
    run(test)


def run(test: Any) -> None:
    """A test of this room, whose loop is its own."""
    running = test()
    if inspect.iscoroutine(running):
        asyncio.run(asyncio.wait_for(running, 20))
