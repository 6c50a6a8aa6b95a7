"""DeleteAcls: the ACLs that filters match are deleted (KIP-140, §61.4)."""

from collections.abc import Sequence

from ottla.broker.handlers.describe_acls import check_authorizer, filter_of
from ottla.broker.metadata.acls import AclManager
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.security.acl import AclBinding


async def handle(
    acls: AclManager,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: DeleteAclsRequest,
) -> DeleteAclsResponse:
    outcomes: Sequence[list[AclBinding] | KafkaError]
    try:
        check_authorizer(runtime)
        outcomes = await acls.delete([filter_of(each) for each in request.filters])
    except KafkaError as error:
        outcomes = [error] * len(request.filters)
    return DeleteAclsResponse(filter_results=list(map(_result, outcomes)))


def _result(outcome: list[AclBinding] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return DeleteAclsFilterResult(error_code=int(outcome.code), error_message=str(outcome))
    return DeleteAclsFilterResult(error_message=None, matching_acls=list(map(_matched, outcome)))


def _matched(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=int(acl.resource_type),
        resource_name=acl.name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
