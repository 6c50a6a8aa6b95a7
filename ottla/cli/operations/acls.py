"""ACLs at any broker that speaks Kafka's protocol: what is written for producers and consumers, and what is there."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from ottla.cli.client import Client
from ottla.cli.failures import ClientError, check
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.security.acl import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

Resource = tuple[ResourceType, str]
Grant = tuple[Resource, AclOperation]
Holder = tuple[str, str, Permission]
"""A principal, the host it comes from, and whether it is allowed or denied."""

_CLUSTER: Resource = (ResourceType.CLUSTER, CLUSTER_NAME)


def producer_grants(topics: Iterable[str], transactional_ids: Iterable[str], *, is_idempotent: bool) -> list[Grant]:
    """What a producer needs, as Kafka's `kafka-acls --producer` writes it."""
    on_topics = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
    grants = [((ResourceType.TOPIC, name), operation) for name in topics for operation in on_topics]
    grants += [
        ((ResourceType.TRANSACTIONAL_ID, name), operation)
        for name in transactional_ids
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
    ]
    return [*grants, (_CLUSTER, AclOperation.IDEMPOTENT_WRITE)] if is_idempotent else grants


def consumer_grants(topics: Iterable[str], groups: Iterable[str]) -> list[Grant]:
    """What a consumer needs, as Kafka's `kafka-acls --consumer` writes it."""
    on_topics = (AclOperation.READ, AclOperation.DESCRIBE)
    grants = [((ResourceType.TOPIC, name), operation) for name in topics for operation in on_topics]
    return grants + [((ResourceType.GROUP, name), AclOperation.READ) for name in groups]


def bindings(grants: Iterable[Grant], holders: Sequence[Holder], pattern_type: PatternType) -> list[AclBinding]:
    """Each grant for each holder; an ACL of the cluster has no prefix."""
    return [
        AclBinding(
            kind,
            name,
            PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type,
            principal,
            host,
            operation,
            permission,
        )
        for ((kind, name), operation), (principal, host, permission) in product(dict.fromkeys(grants), holders)
    ]


def creation_of(wanted: Iterable[AclBinding]) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=int(acl.resource_type),
                resource_name=acl.name,
                resource_pattern_type=int(acl.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in wanted
        ]
    )


async def add(client: Client, wanted: Sequence[AclBinding]) -> None:
    """Raises Refused."""
    response = await client.ask_controller(creation_of(wanted), CreateAclsResponse)
    for acl, result in zip(wanted, response.results, strict=True):
        check(f"cannot add the ACL of {acl.principal} on {acl.name}", result.error_code, result.error_message)


def described(response: DescribeAclsResponse) -> set[AclBinding]:
    return {
        AclBinding(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            Permission(acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    }


async def find(client: Client, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """All that one of the filters matches, in order of resources. Raises Refused."""
    found: set[AclBinding] = set()
    for each in filters:
        response = await client.ask_any(DescribeAclsRequest(**_fields(each)), DescribeAclsResponse)
        check("cannot list ACLs", response.error_code, response.error_message)
        found |= described(response)
    return sorted(found)


def deletion_of(filters: Iterable[AclFilter]) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(each)) for each in filters])


async def remove(client: Client, filters: Sequence[AclFilter]) -> int:
    """How many ACLs are gone that one of the filters matched. Raises Refused."""
    response = await client.ask_controller(deletion_of(filters), DeleteAclsResponse)
    removed: set[tuple[object, ...]] = set()
    for result in response.filter_results:
        check("cannot remove ACLs", result.error_code, result.error_message)
        for acl in result.matching_acls:
            check("cannot remove an ACL", acl.error_code, acl.error_message)
            pattern = acl.resource_type, acl.resource_name, acl.pattern_type
            removed.add((*pattern, acl.principal, acl.host, acl.operation, acl.permission_type))
    return len(removed)


def check_operations(grants: Iterable[Grant]) -> None:
    """Raises ClientError for an operation that means nothing for its type."""
    for (kind, _), operation in grants:
        known = OPERATIONS_OF[kind]
        if operation not in known and operation is not AclOperation.ALL:
            names = ", ".join(sorted(each.name for each in known))
            raise ClientError(f"{operation.name} means nothing for a resource of the type {kind.name}: ALL, {names} do")


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }
