"""Bugs of decisions that the tests of the authorizer must find, seeded one at a time (ST in docs/seeded-bugs.md)."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ottla.security import authentication, authorizer
from ottla.security.acl import WILDCARD, AclOperation, ResourceType
from ottla.security.acl_index import AclIndex, AclsOfName, _AclsOfType
from ottla.security.authorizer import Authorizer, Decision
from tests.security import test_authorizer
from tests.security.test_authorizer import DENY, acl
from tests.seeding import has_to_fail, rewrite

Patch = pytest.MonkeyPatch
Test = Callable[[], None]


def first_acl_that_fits_decides(patch: Patch) -> None:
    rewrite(patch, Authorizer.decide, ("allowed = acl", 'return Decision(True, "acl", acl)'))


def denials_of_other_patterns_yield(patch: Patch) -> None:
    """What is allowed by the name itself is not denied by a wildcard or a prefix."""
    denies = "if acl.permission is Permission.DENY"
    rewrite(patch, Authorizer.decide, (denies, f"{denies} and (allowed is None or allowed.name == acl.name)"))


def denials_are_implied(patch: Patch) -> None:
    rewrite(patch, authorizer._fits, ("acl.permission is Permission.ALLOW and ", ""))


def does_not_give_describe(operation: AclOperation, patch: Patch) -> None:
    giving = authorizer._IMPLIED[AclOperation.DESCRIBE]
    assert operation in giving
    patch.setitem(authorizer._IMPLIED, AclOperation.DESCRIBE, giving - {operation})


def gives_describe(operation: AclOperation, patch: Patch) -> None:
    giving = authorizer._IMPLIED[AclOperation.DESCRIBE]
    assert operation not in giving
    patch.setitem(authorizer._IMPLIED, AclOperation.DESCRIBE, giving | {operation})


def default_is_for_whom_no_acl_is_about(patch: Patch) -> None:
    rewrite(patch, Authorizer.decide, ("return _NO_ACL if is_about else self._default", "return self._default"))


def scan_stops_at_the_first_non_prefix(patch: Patch) -> None:
    """KAFKA-14265: names in descending order, from that of the resource on."""

    def about(self: AclIndex, resource_type: ResourceType, name: str) -> Iterator[AclsOfName]:
        of_type = self._types.get(resource_type, _AclsOfType())
        yield from (of_type.literal[each] for each in (name, WILDCARD) if each in of_type.literal)
        prefixed = {each: acls for names in of_type.prefixed.values() for each, acls in names.items()}
        scanned = takewhile(name.startswith, sorted((each for each in prefixed if each <= name), reverse=True))
        yield from (prefixed[each] for each in scanned)

    patch.setattr(AclIndex, "about", about)


def longest_prefix_alone_counts(patch: Patch) -> None:
    every = "for length, names in of_type.prefixed.items():"
    longest_first = "for length, names in sorted(of_type.prefixed.items(), reverse=True):"
    rewrite(patch, AclIndex.about, (every, longest_first), ("yield fitting", "yield fitting; break"))


def super_users_are_bound_by_denials(patch: Patch) -> None:
    decide = Authorizer.decide

    def bound(self: Authorizer, *asked: Any) -> Decision:
        as_others = decide(Authorizer(self.acls, frozenset()), *asked)
        return decide(self, *asked) if as_others.acl is None or as_others.is_allowed else as_others

    patch.setattr(Authorizer, "decide", bound)


def super_users_are_separated_by_commas(patch: Patch) -> None:
    rewrite(patch, authentication.parse_super_users, ('text.split(";")', 'text.split(",")'))


def of_denials() -> None:
    for denied in (acl(permission=DENY), acl("User:*", DENY), acl("User:*", DENY, name="*")):
        test_authorizer.test_a_denial_decides_wherever_it_stands(denied)


def of_describe(operation: AclOperation) -> Test:
    return partial(test_authorizer.test_who_may_do_something_may_describe, operation)


SEEDED: dict[str, tuple[Callable[[Patch], None], Test]] = {
    "ST-9 order": (first_acl_that_fits_decides, of_denials),
    "ST-9 pattern": (denials_of_other_patterns_yield, of_denials),
    "ST-10 denied": (denials_are_implied, test_authorizer.test_what_is_implied_and_what_is_not),
    **{
        f"ST-10 {operation.name}": (partial(does_not_give_describe, operation), of_describe(operation))
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    },
    "ST-10 ALTER_CONFIGS": (
        partial(gives_describe, AclOperation.ALTER_CONFIGS),
        test_authorizer.test_what_is_implied_and_what_is_not,
    ),
    "ST-11": (default_is_for_whom_no_acl_is_about, test_authorizer.test_the_default_is_for_what_no_acl_is_about),
    "ST-12 scan": (scan_stops_at_the_first_non_prefix, test_authorizer.test_prefixes_of_all_lengths_count),
    "ST-12 longest": (longest_prefix_alone_counts, test_authorizer.test_prefixes_of_all_lengths_count),
    "ST-13 denied": (super_users_are_bound_by_denials, test_authorizer.test_super_users_are_not_bound),
    "ST-13 commas": (super_users_are_separated_by_commas, test_authorizer.test_super_users_are_not_bound),
}


# Found at its first failure, which is not made small, and not kept for later runs.
of_the_model = settings(
    max_examples=test_authorizer.MODEL_EXAMPLES, phases=[Phase.generate], report_multiple_bugs=False, database=None
)(
    given(test_authorizer.acls_of_one_type, st.booleans())(
        test_authorizer.test_decisions_are_those_of_the_model.hypothesis.inner_test
    )
)


@pytest.mark.parametrize(("seed_bug", "test"), SEEDED.values(), ids=SEEDED.keys())
def test_a_seeded_bug_is_found(seed_bug: Callable[[Patch], None], test: Test) -> None:
    test()
    with pytest.MonkeyPatch.context() as patch:
        seed_bug(patch)
        with has_to_fail():
            test()
    test()


@pytest.mark.parametrize("bug", [bug for bug in SEEDED if not bug.startswith("ST-13")])
def test_the_model_finds_a_seeded_bug(bug: str, monkeypatch: Patch) -> None:
    """Other than of super users, of which it has none."""
    seed_bug, _ = SEEDED[bug]
    seed_bug(monkeypatch)
    with has_to_fail():
        of_the_model()


def test_a_seed_that_changes_nothing_is_an_error(monkeypatch: Patch) -> None:
    with pytest.raises(AssertionError, match="has 0 times 'no such text'"):
        rewrite(monkeypatch, Authorizer.decide, ("no such text", ""))
    with pytest.raises(AssertionError, match="has 2 times 'return Decision'"):
        rewrite(monkeypatch, Authorizer.decide, ("return Decision", "return"))


def test_an_error_of_what_was_seeded_is_no_finding(monkeypatch: Patch) -> None:
    test = test_authorizer.test_prefixes_of_all_lengths_count
    with pytest.raises(pytest.fail.Exception), has_to_fail():
        test()
    rewrite(monkeypatch, Authorizer.decide, ("is_about = False", "assert self is None"))
    with pytest.raises(AssertionError, match=r"authorizer.py:.* has failed, which is no test"), has_to_fail():
        test()
    monkeypatch.setattr(Authorizer, "decide", lambda *_: None)
    with pytest.raises(AttributeError), has_to_fail():
        test()
