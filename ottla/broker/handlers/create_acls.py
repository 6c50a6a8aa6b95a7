"""CreateAcls: principals are allowed or denied operations on resources (KIP-140, §61.2)."""

from ottla.broker.handlers.describe_acls import check_authorizer
from ottla.broker.metadata.acls import AclManager
from ottla.broker.runtime import Runtime, in_slices
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.security.acl import AclBinding, AclOperation, PatternType, Permission, ResourceType


async def handle(
    acls: AclManager,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: CreateAclsRequest,
) -> CreateAclsResponse:
    outcomes: list[KafkaError | None]
    try:
        check_authorizer(runtime)
        outcomes = await acls.create(await in_slices(_binding, request.creations))
    except KafkaError as error:
        outcomes = [error] * len(request.creations)
    return CreateAclsResponse(results=list(map(_result, outcomes)))


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        Permission(creation.permission_type),
    )


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=int(error.code), error_message=str(error))
