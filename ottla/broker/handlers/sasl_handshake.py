"""SaslHandshake: the mechanism by which the client logs in, or logs in again (§54.4, §54.10, §54.15)."""

from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.authentication import AuthenticationError


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
    gate = context.connection.gate
    if gate is None:
        return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
    answer = gate.handshake(request.mechanism, context.api_version)
    response = SaslHandshakeResponse(error_code=int(answer.error), mechanisms=list(answer.mechanisms))
    if answer.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        gate.fail(context, response, AuthenticationError("the mechanism is not enabled on this listener"))
        return None
    return response
