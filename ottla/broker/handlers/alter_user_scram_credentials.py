"""AlterUserScramCredentials: users get SCRAM credentials, or lose them (KIP-554, §80)."""

from ottla.broker.metadata.scram_users import ScramUserManager
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.scram_users import ScramAlteration, ScramDeletion, ScramUpsertion
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle(
    scram_users: ScramUserManager,
    context: RequestContext,  # noqa: ARG001
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    alterations = _asked(request)
    users = dict.fromkeys(each.user for each in alterations)
    try:
        refused = await scram_users.alter(alterations)
    except KafkaError as error:
        refused = dict.fromkeys(users, error)
    return AlterUserScramCredentialsResponse(results=[_result(user, refused.get(user)) for user in users])


def _asked(request: AlterUserScramCredentialsRequest) -> list[ScramAlteration]:
    deletions = [ScramDeletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        ScramUpsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    return [*deletions, *upsertions]


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=int(error.code), error_message=str(error))
