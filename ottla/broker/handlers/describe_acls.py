"""DescribeAcls: the ACLs that a filter matches (KIP-140, §61.3)."""

from functools import partial

from ottla.broker.metadata.acls import AclManager
from ottla.broker.runtime import Runtime, in_slices
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, error_for
from ottla.protocol.messages.delete_acls import DeleteAclsFilter
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acl import AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType

NO_AUTHORIZER = "No Authorizer is configured."
_Resources = dict[tuple[ResourceType, str, PatternType], DescribeAclsResource]


async def handle(
    acls: AclManager,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: DescribeAclsRequest,
) -> DescribeAclsResponse:
    check_authorizer(runtime)
    found = await acls.find(filter_of(request))
    resources: _Resources = {}
    await in_slices(partial(_add, resources), found)
    return DescribeAclsResponse(resources=list(resources.values()))


def _add(resources: _Resources, acl: AclBinding) -> None:
    pattern = acl.resource_type, acl.name, acl.pattern_type
    if pattern not in resources:
        resources[pattern] = DescribeAclsResource(
            resource_type=int(acl.resource_type), resource_name=acl.name, pattern_type=int(acl.pattern_type)
        )
    resources[pattern].acls.append(_description(acl))


def check_authorizer(runtime: Runtime) -> None:
    """Raises SECURITY_DISABLED: without an authorizer ACLs mean nothing."""
    if not runtime.config.authorizer_class_name:
        raise error_for(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Of a request of this API, or of one filter of DeleteAcls, which has the same fields."""
    return AclFilter(
        ResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation(asked.operation),
        Permission(asked.permission_type),
    )


def _description(acl: AclBinding) -> AclDescription:
    return AclDescription(
        principal=acl.principal, host=acl.host, operation=int(acl.operation), permission_type=int(acl.permission)
    )
