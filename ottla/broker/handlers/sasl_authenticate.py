"""SaslAuthenticate: a token of the client, and what the mechanism answers (§54.5, §54.10, §54.13)."""

from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.security.authentication import AuthenticationError
from ottla.security.exchange import sentence_for_client


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | None:
    gate = context.connection.gate
    if gate is None or gate.is_open:
        return SaslAuthenticateResponse(
            error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
            error_message="SaslAuthenticate comes behind a SaslHandshake, and not after the login",
        )
    try:
        reply = gate.respond(request.auth_bytes)
    except AuthenticationError as error:
        code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
        sentence = sentence_for_client(error, gate.mechanism)
        gate.fail(context, SaslAuthenticateResponse(error_code=code, error_message=sentence), error)
        return None
    return SaslAuthenticateResponse(error_message=None, auth_bytes=reply.token, session_lifetime_ms=reply.lifetime_ms)
