"""Bugs of a control address are seeded, one at a time, and the tests find them."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.admin.http import HttpRequest
from ottla.testing.control import access, listener, service
from ottla.testing.control.access import ControlAccess
from ottla.testing.control.problems import Problem
from ottla.testing.testbed import Testbed
from tests.control import test_access, test_hostile_input, test_limits
from tests.control.asking import TOKEN, Asker, opened_control

Patch = pytest.MonkeyPatch


def logs_the_token(patch: Patch, bed: Testbed) -> None:
    """KT-20."""
    real = ControlAccess.check

    def check(self: ControlAccess, request: HttpRequest) -> None:
        bed.hosted.log.warning("asked", headers=dict(request.headers))
        real(self, request)

    patch.setattr(ControlAccess, "check", check)


def answers_with_the_token(patch: Patch, bed: Testbed) -> None:
    """KT-20."""
    real = Problem.document
    patch.setattr(Problem, "document", lambda self: {**real(self), "expected": TOKEN})


def takes_a_token_that_begins_well(patch: Patch, bed: Testbed) -> None:
    patch.setattr(access.hmac, "compare_digest", lambda given, token: token.startswith(given[:-1]))


def looks_at_no_origin(patch: Patch, bed: Testbed) -> None:
    real = ControlAccess.check

    def check(self: ControlAccess, request: HttpRequest) -> None:
        kept = {name: value for name, value in request.headers.items() if name != "origin"}
        real(self, request._replace(headers=kept))

    patch.setattr(ControlAccess, "check", check)


def takes_any_host(patch: Patch, bed: Testbed) -> None:
    patch.setattr(ControlAccess, "_knows", lambda *_: True)


def takes_forms(patch: Patch, bed: Testbed) -> None:
    patch.setattr(access, "WITH_BODY", ())


def waits_on_without_its_caller(patch: Patch, bed: Testbed) -> None:
    patch.setattr(listener, "LIMITS", listener.LIMITS._replace(notices_end=False))
    patch.setattr(test_limits, "WAITED_S", 1)


def lets_any_number_wait(patch: Patch, bed: Testbed) -> None:
    patch.setattr(service, "WAITING_MAX", 10_000)
    patch.setattr(test_limits, "WAITED_S", 1)


def no_token_anywhere(bed: Testbed, control: listener.ControlListener) -> None:
    test_hostile_input.test_the_token_is_in_no_answer_and_no_log(Asker(control.url), bed, control)


def wrong_tokens(bed: Testbed, control: listener.ControlListener) -> None:
    test_access.test_wrong_token_is_refused(f"Bearer {TOKEN[:-1]}x")


def strangers(bed: Testbed, control: listener.ControlListener) -> None:
    for headers, problem in test_limits.STRANGERS:
        test_limits.test_request_of_a_stranger_changes_nothing(Asker(control.url), headers, problem)


def callers_that_go(bed: Testbed, control: listener.ControlListener) -> None:
    test_limits.test_wait_ends_when_its_caller_goes(Asker(control.url), bed, control)


def many_waits(bed: Testbed, control: listener.ControlListener) -> None:
    test_limits.test_three_hundred_waits_are_bounded_and_the_broker_serves(Asker(control.url), bed, control)


@pytest.mark.parametrize(
    ("seed", "found_by"),
    [
        (logs_the_token, no_token_anywhere),
        (answers_with_the_token, no_token_anywhere),
        (takes_a_token_that_begins_well, wrong_tokens),
        (looks_at_no_origin, strangers),
        (takes_any_host, strangers),
        (takes_forms, strangers),
        (waits_on_without_its_caller, callers_that_go),
        (lets_any_number_wait, many_waits),
    ],
)
def test_a_seeded_bug_is_found(
    seed: Callable[[Patch, Testbed], None], found_by: Callable[[Testbed, Any], None], bed: Testbed, monkeypatch: Patch
) -> None:
    seed(monkeypatch, bed)

    with opened_control(bed) as control, pytest.raises(AssertionError):
        found_by(bed, control)


@pytest.mark.parametrize("found_by", [no_token_anywhere, wrong_tokens, strangers, callers_that_go, many_waits])
def test_without_a_bug_nothing_is_found(found_by: Callable[[Testbed, Any], None], bed: Testbed) -> None:
    with opened_control(bed) as control:
        found_by(bed, control)
