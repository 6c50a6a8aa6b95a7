"""DescribeUserScramCredentials: mechanisms and iterations of users, never a salt or a key (KIP-554, §80)."""

from collections import Counter
from collections.abc import Sequence

from ottla.broker.metadata.scram_users import ScramMechanismInfo, ScramUserManager
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    scram_users: ScramUserManager,
    context: RequestContext,  # noqa: ARG001
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    if not request.users:
        everybody = await scram_users.all_mechanisms()
        results = [_described(user, mechanisms) for user, mechanisms in everybody.items()]
        return DescribeUserScramCredentialsResponse(results=results)
    times = Counter(each.name for each in request.users)
    once = [user for user, count in times.items() if count == 1]
    found = dict(zip(once, await scram_users.mechanisms_of(once), strict=True))
    results = [_described(user, found[user]) if user in found else _named_twice(user) for user in times]
    return DescribeUserScramCredentialsResponse(results=results)


def _described(user: str, mechanisms: Sequence[ScramMechanismInfo]) -> DescribeUserScramCredentialsResult:
    if not mechanisms:
        why = f"Attempt to describe a user credential that does not exist: {user}"
        return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, why)
    infos = [CredentialInfo(mechanism=int(each.scram), iterations=each.iterations) for each in mechanisms]
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


def _named_twice(user: str) -> DescribeUserScramCredentialsResult:
    why = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    return _refused(user, ErrorCode.DUPLICATE_RESOURCE, why)


def _refused(user: str, code: ErrorCode, why: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=int(code), error_message=why)
