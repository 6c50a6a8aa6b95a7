"""Decisions of the authorizer: examples, and a model that looks at every ACL."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.acl import AclBinding, AclOperation, PatternType, Permission, ResourceType, is_pattern_for
from ottla.security.acl_index import AclIndex
from ottla.security.authentication import ANONYMOUS, Principal, parse_principal, parse_super_users
from ottla.security.authorizer import Authorizer

ALICE, BOB = parse_principal("User:alice"), parse_principal("User:bob")
HERE, THERE = "127.0.0.1", "10.0.0.7"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    principal: str = "User:alice",
    permission: Permission = ALLOW,
    operation: AclOperation = AclOperation.READ,
    name: str = "orders",
    pattern_type: PatternType = LITERAL,
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, name, pattern_type, principal, host, operation, permission)


def may(
    acls: Sequence[AclBinding],
    operation: AclOperation = AclOperation.READ,
    *,
    principal: Principal = ALICE,
    name: str = "orders",
    host: str = HERE,
    by_default: bool = False,
) -> bool:
    authorizer = Authorizer(AclIndex(acls), frozenset(), allows_without_acl=by_default)
    return authorizer.decide(principal, host, operation, TOPIC, name).is_allowed


def test_without_an_acl_the_default_decides() -> None:
    assert not may([])
    assert may([], by_default=True)


def test_the_default_is_for_what_no_acl_is_about() -> None:
    """ST-11: an ACL of somebody else is one about the resource too."""
    assert not may([acl("User:bob")], by_default=True)
    assert may([acl(resource_type=GROUP)], by_default=True)


def test_an_acl_is_for_its_principal_host_and_operation() -> None:
    acls = [acl(host=HERE)]
    assert may(acls)
    assert not may(acls, principal=BOB)
    assert not may(acls, host=THERE)
    assert not may(acls, AclOperation.WRITE)


@pytest.mark.parametrize("denied", [acl(permission=DENY), acl("User:*", DENY), acl("User:*", DENY, name="*")])
def test_a_denial_decides_wherever_it_stands(denied: AclBinding) -> None:
    """ST-9"""
    allowed = acl()
    assert not may([allowed, denied])
    assert not may([denied, allowed])


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_who_may_do_something_may_describe(operation: AclOperation) -> None:
    assert may([acl(operation=operation)], AclOperation.DESCRIBE)


def test_what_is_implied_and_what_is_not() -> None:
    """ST-10"""
    assert may([acl(operation=AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS)
    assert not may([acl(operation=AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE)
    assert not may([acl(operation=AclOperation.CREATE)], AclOperation.DESCRIBE)
    assert may([acl(operation=AclOperation.DESCRIBE), acl(permission=DENY)], AclOperation.DESCRIBE)
    assert not may(
        [acl(operation=AclOperation.DESCRIBE), acl(permission=DENY, operation=AclOperation.ALL)], AclOperation.DESCRIBE
    )


def test_prefixes_of_all_lengths_count() -> None:
    """ST-12: between foobar and f there is fooa."""
    acls = [acl(name=name, pattern_type=PREFIXED) for name in ("f", "fooa", "foobar-")]
    assert may(acls, name="fooz")
    assert may(acls, name="foobar-1")
    assert not may(acls, name="bar")
    assert not may([*acls, acl(permission=DENY, name="fo", pattern_type=PREFIXED)], name="foobar-1")


def test_an_asterisk_as_a_prefix_is_an_asterisk() -> None:
    acls = [acl(name="*", pattern_type=PREFIXED)]
    assert not may(acls)
    assert may(acls, name="*orders")


def test_everybody_is_one_name() -> None:
    assert may([acl("User:*")], principal=ANONYMOUS)
    assert may([acl("User:*")], principal=Principal("Group", "crew"))
    assert not may([acl("Group:*")], principal=Principal("Group", "crew"))


def test_super_users_are_not_bound() -> None:
    """ST-13"""
    super_users = parse_super_users(" User:CN=admin,O=Ottla ;; User:root")
    authorizer = Authorizer(AclIndex([acl("User:*", DENY, AclOperation.ALL, "*")]), super_users)
    for name in ("CN=admin,O=Ottla", "root"):
        decision = authorizer.decide(Principal("User", name), HERE, AclOperation.READ, TOPIC, "orders")
        assert (decision.is_allowed, decision.why) == (True, "super user")
    assert not authorizer.decide(ALICE, HERE, AclOperation.READ, TOPIC, "orders").is_allowed


@pytest.mark.parametrize("host", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"])
def test_hosts_are_compared_as_addresses(host: str) -> None:
    assert may([acl(host=host)], host="::1")
    assert may([acl(host="::ffff:127.0.0.1")], host=HERE)


NAMES = ("*", "a", "ab", "abc", "abd", "b", "hardcode")
OPERATIONS = (AclOperation.ALL, *list(AclOperation)[3:12])
MODEL_EXAMPLES = 300
"""So that each seeded bug of decisions is found among them (`test_seeded_authorizer_bugs.py`)."""
principals = st.sampled_from(["User:alice", "User:bob", "User:*"])
acls_of_one_type = st.lists(
    st.builds(
        acl,
        principals,
        st.sampled_from([ALLOW, ALLOW, DENY]),
        st.sampled_from(OPERATIONS),
        st.sampled_from(NAMES),
        st.sampled_from([LITERAL, PREFIXED]),
        st.sampled_from(["*", HERE, THERE]),
    ),
    max_size=12,
)
IMPLYING = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def model(acls: Sequence[AclBinding], operation: AclOperation, name: str, *, by_default: bool) -> bool:
    about = [each for each in acls if is_pattern_for(each.pattern_type, each.name, name)]
    own = [each for each in about if each.principal in ("User:alice", "User:*") and each.host in ("*", HERE)]
    if any(each.permission is DENY and each.operation in (operation, AclOperation.ALL) for each in own):
        return False
    allowing = {operation, AclOperation.ALL} | IMPLYING.get(operation, set())
    if any(each.permission is ALLOW and each.operation in allowing for each in own):
        return True
    return by_default and not about


@settings(max_examples=MODEL_EXAMPLES)
@given(acls_of_one_type, st.booleans())
def test_decisions_are_those_of_the_model(acls: list[AclBinding], by_default: bool) -> None:
    """All of them: few of the ACLs that are drawn are about a certain operation on a certain name."""
    authorizer = Authorizer(AclIndex(acls), frozenset(), allows_without_acl=by_default)
    for operation in OPERATIONS:
        for name in NAMES:
            is_allowed = authorizer.decide(ALICE, HERE, operation, TOPIC, name).is_allowed
            assert is_allowed == model(acls, operation, name, by_default=by_default), (operation, name)


@given(acls_of_one_type, st.booleans())
def test_some_resource_is_one_that_a_name_is_found_for(acls: list[AclBinding], by_default: bool) -> None:
    """Where a name is found for it that it may write to without an implied permission, it may write to some."""
    authorizer = Authorizer(AclIndex(acls), frozenset(), allows_without_acl=by_default)
    decision = authorizer.decide_for_some(ALICE, HERE, AclOperation.WRITE, TOPIC)
    denies_all = any(
        each.permission is DENY
        and (each.pattern_type, each.name) == (LITERAL, "*")
        and each.principal in ("User:alice", "User:*")
        and each.host in ("*", HERE)
        and each.operation in (AclOperation.WRITE, AclOperation.ALL)
        for each in acls
    )
    probed = [each.name + end for each in acls if each.permission is ALLOW for end in ("", "-not-named-anywhere")]
    is_found = any(
        authorizer.decide(ALICE, HERE, AclOperation.WRITE, TOPIC, name).why == "acl"
        and authorizer.decide(ALICE, HERE, AclOperation.WRITE, TOPIC, name).is_allowed
        for name in probed
    )
    if denies_all:
        assert not decision.is_allowed
    elif is_found:
        assert decision.is_allowed


@pytest.mark.parametrize(
    ("denied", "is_allowed"),
    [
        (acl(permission=DENY, operation=AclOperation.WRITE, name="team-a"), True),
        (acl(permission=DENY, operation=AclOperation.WRITE, name="te", pattern_type=PREFIXED), False),
        (acl(permission=DENY, operation=AclOperation.WRITE, name="team-", pattern_type=PREFIXED), False),
        (acl(permission=DENY, operation=AclOperation.WRITE, name="team-a", pattern_type=PREFIXED), True),
        (acl(permission=DENY, operation=AclOperation.ALL, name="*"), False),
    ],
)
def test_a_denied_prefix_leaves_nothing_of_a_longer_one(denied: AclBinding, is_allowed: bool) -> None:
    acls = [acl(operation=AclOperation.WRITE, name="team-", pattern_type=PREFIXED), denied]
    authorizer = Authorizer(AclIndex(acls), frozenset())
    assert authorizer.decide_for_some(ALICE, HERE, AclOperation.WRITE, TOPIC).is_allowed == is_allowed


def test_the_cost_does_not_grow_with_acls_about_others() -> None:
    acls = [acl(f"User:u{number}", name=f"topic-{number % 1000}", pattern_type=LITERAL) for number in range(20_000)]
    authorizer = Authorizer(AclIndex([*acls, acl(name="topic-7")]), frozenset())
    about = list(authorizer.acls.about(TOPIC, "topic-7"))
    assert len(about) == 1
    assert authorizer.decide(ALICE, HERE, AclOperation.READ, TOPIC, "topic-7").is_allowed
    assert not authorizer.decide(BOB, HERE, AclOperation.READ, TOPIC, "topic-7").is_allowed


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=30), acls_of_one_type)
def test_a_changed_index_is_one_made_of_what_is_left(changes: list[tuple[bool, int]], acls: list[AclBinding]) -> None:
    index, left = AclIndex(), set[AclBinding]()
    for is_added, number in changes:
        if not acls:
            break
        each = acls[number % len(acls)]
        before, was = index, contents(index)
        index = index.with_changes(added=[each] if is_added else (), removed=() if is_added else [each])
        left = left | {each} if is_added else left - {each}
        assert contents(before) == was
        assert contents(index) == contents(AclIndex(left))


def contents(index: AclIndex) -> dict[str, set[AclBinding]]:
    """By the names of a few resources, what is about them."""
    return {
        name: {each.acl for found in index.about(TOPIC, name) for indexed in found.values() for each in indexed}
        for name in ("*", "a", "ab", "abc", "abd", "b", "hardcode", "other")
    }
