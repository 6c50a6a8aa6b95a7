"""CreateAcls, DescribeAcls and DeleteAcls as bytes (§61)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ottla.broker import runtime
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.security.acl import AclBinding
from tests.broker.asking import running
from tests.broker.authorization.world import CLUSTER, GROUP, PREFIXED, TOPIC, Secured, acl, secured

ANY, MATCH = 1, 2
VERSION = 3
PREFIXED_NUMBER = 4
EVERY: dict[str, Any] = {
    "resource_type_filter": ANY,
    "pattern_type_filter": ANY,
    "operation": ANY,
    "permission_type": ANY,
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
}
"""A filter that all ACLs match."""


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path) as made:
        yield made


def creation(each: AclBinding, **fields: Any) -> AclCreation:
    given = {
        "resource_type": int(each.resource_type),
        "resource_name": each.name,
        "resource_pattern_type": int(each.pattern_type),
        "principal": each.principal,
        "host": each.host,
        "operation": int(each.operation),
        "permission_type": int(each.permission),
    }
    return AclCreation(**(given | fields))


def describing(**fields: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**(EVERY | fields))


def deleting(**fields: Any) -> DeleteAclsFilter:
    return DeleteAclsFilter(**(EVERY | fields))


def names(response: Any) -> set[tuple[int, str, int]]:
    return {(each.resource_type, each.resource_name, each.pattern_type) for each in response.resources}


READ_ORDERS = acl("READ", TOPIC, "orders")
ACLS = [
    READ_ORDERS,
    acl("WRITE", TOPIC, "orders"),
    acl("READ", TOPIC, "or", pattern_type=PREFIXED),
    acl("READ", TOPIC, "*"),
    acl("READ", TOPIC, "other"),
    acl("READ", GROUP, "orders"),
]


async def test_those_that_are_valid_are_created_and_others_refused(world: Secured) -> None:
    admin = await world.client("admin")
    wrong = [
        {"resource_type": ANY},
        {"resource_type": 99},
        {"resource_pattern_type": MATCH},
        {"operation": ANY},
        {"operation": 99},
        {"permission_type": ANY},
        {"resource_name": ""},
        {"principal": "alice"},
        {"host": "example.org"},
        {"resource_name": "a\nb"},
        {"resource_type": int(CLUSTER)},
    ]
    creations = [creation(READ_ORDERS), *(creation(READ_ORDERS, **fields) for fields in wrong), creation(READ_ORDERS)]
    response = await admin.ask(CreateAclsRequest(creations=creations), VERSION)

    codes = [each.error_code for each in response.results]
    assert codes == [0, *[int(ErrorCode.INVALID_REQUEST)] * len(wrong), 0]
    assert list(world.broker.image.acls.values()) == [READ_ORDERS]


async def test_filters_match_patterns_as_in_kafka(world: Secured) -> None:
    await world.set_acls(ACLS)
    admin = await world.client("admin")

    async def found(**fields: Any) -> set[tuple[int, str, int]]:
        response = await admin.ask(describing(**fields), VERSION)
        assert response.error_code == 0
        return names(response)

    assert len(await found()) == 5
    of_topics = {"resource_type_filter": int(TOPIC), "resource_name_filter": "orders"}
    assert await found(**of_topics) == {(2, "orders", 3)}
    assert await found(**of_topics, pattern_type_filter=PREFIXED_NUMBER) == set()
    assert await found(**of_topics, pattern_type_filter=MATCH) == {(2, "orders", 3), (2, "or", 4), (2, "*", 3)}
    assert await found(pattern_type_filter=PREFIXED_NUMBER) == {(2, "or", 4)}
    assert await found(operation=4) == {(2, "orders", 3)}
    assert await found(principal_filter="User:*") == set()
    assert await found(host_filter="*", resource_type_filter=int(GROUP)) == {(3, "orders", 3)}
    unknown = await admin.ask(describing(operation=99), VERSION)
    assert unknown.error_code == ErrorCode.INVALID_REQUEST


async def test_each_filter_says_what_it_has_deleted(world: Secured) -> None:
    await world.set_acls(ACLS)
    admin = await world.client("admin")
    filters = [
        deleting(resource_name_filter="orders"),
        deleting(resource_type_filter=int(GROUP)),
        deleting(permission_type=99),
        deleting(resource_name_filter="missing"),
    ]
    response = await admin.ask(DeleteAclsRequest(filters=filters), VERSION)

    assert [each.error_code for each in response.filter_results] == [0, 0, int(ErrorCode.INVALID_REQUEST), 0]
    assert [len(each.matching_acls) for each in response.filter_results] == [3, 1, 0, 0]
    assert {each.name for each in world.broker.image.acls.values()} == {"or", "*", "other"}


async def test_thousands_are_created_and_deleted_by_one_request(world: Secured) -> None:
    admin = await world.client("admin")
    wanted = [creation(acl("READ", TOPIC, f"t{number}")) for number in range(1200)]
    created = await admin.ask(CreateAclsRequest(creations=wanted), VERSION)
    assert {each.error_code for each in created.results} == {0}
    assert len(world.broker.image.acls) == 1200
    deleted = await admin.ask(DeleteAclsRequest(filters=[deleting()]), VERSION)
    assert len(deleted.filter_results[0].matching_acls) == 1200
    assert not world.broker.image.acls


async def test_without_an_authorizer_acls_are_disabled(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        described = await asking.ask(describing(), VERSION)
        created = await asking.ask(CreateAclsRequest(creations=[creation(READ_ORDERS)] * 2), VERSION)
        deleted = await asking.ask(DeleteAclsRequest(filters=[deleting()]), VERSION)
    disabled = int(ErrorCode.SECURITY_DISABLED)
    assert (described.error_code, described.error_message) == (disabled, "No Authorizer is configured.")
    assert [each.error_code for each in created.results] == [disabled] * 2
    assert [each.error_code for each in deleted.filter_results] == [disabled]


async def test_acls_outlive_a_restart(tmp_path: Path) -> None:
    async with secured(tmp_path) as made:
        await made.set_acls(ACLS)
    async with secured(tmp_path) as made:
        assert set(made.broker.image.acls.values()) == set(ACLS)


async def test_many_acls_are_described_in_steps(world: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 that would hold up the loop for half a second."""
    next_step, steps = runtime.next_step, []

    def counted() -> Any:
        steps.append(1)
        return next_step()

    wanted = [acl("READ", TOPIC, f"t{number}") for number in range(2 * runtime.ITEMS_PER_SLICE + 1)]
    await world.set_acls(wanted)
    admin = await world.client("admin")
    monkeypatch.setattr(runtime, "next_step", counted)
    answer = await admin.ask(describing(), 3)

    assert sorted(each.resource_name for each in answer.resources) == sorted(each.name for each in wanted)
    # Two while they are looked for, and two while they are described.
    assert len(steps) == 4
