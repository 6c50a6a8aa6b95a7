"""What stands before each handler, where an authorizer is configured: nothing reaches one that has not been allowed.

The guard of an API refuses the whole request, or takes out of it what the sender may not ask for and adds the refusals
to the response. What it enforces stands in the API's row (`Api.needs`); an API without a guard is refused.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ottla.broker.authorization.access import Access, Authorization
from ottla.broker.authorization.refusals import ERROR_OF, refusal
from ottla.broker.runtime import ONE_SLICE_BYTES
from ottla.broker.server.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from ottla.broker.server.dispatch import Handle
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType

# Of a request whose refusals may be many.
LONG_REQUEST = 4 * ONE_SLICE_BYTES

Guard = Callable[[Access, RequestContext, Any], Any | None]
"""Gives the response of a request that is refused as a whole, or what makes it, else None, and leaves in the request
what is allowed."""


class AuthorizationGuard:
    """Given to the dispatcher, which asks it once per API and version."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._guards = _guards()

    def guarded(self, api: Api, handle: Handle) -> Handle:
        guard = self._guards.get(api.key) or (_of_top_needs(api) if _is_refused_at_top(api) else _refuse)
        return partial(_handle, self._authorization, api.name, guard, handle)


def _handle(
    authorization: Authorization, api: str, guard: Guard, handle: Handle, context: RequestContext, request: Any
) -> Any | None:
    connection = context.connection
    # It is not parked, so the client is who it was when it sent this; and what is parked keeps its context for itself.
    access: Any = context.access
    if (
        access is not None
        and access.image is authorization.metadata.image
        and access.principal is connection.principal
        and access.view.authorizer is authorization.authorizer
    ):
        # Field by field, and not in a call: this is part of every request.
        access.api = api
        access.amendments = access.closes_with = None
    else:
        access = authorization.access(connection.principal, connection.peer_host, api)
        context.access = access
    refused = guard(access, context, request)
    if refused is not None:
        # What was to be added is for the handler's response.
        access.forget_amendments()
        return _in_slices(authorization, context, refused)
    response = handle(context, request)
    if access.closes_with is not None:
        context.close_connection(access.closes_with)
    # A request that is parked is answered by its context.
    if response is None or access.amendments is None:
        return response
    if _is_long(context) and not context.route.defers_answer:
        # What is to be added comes in a step of its own, with the response.
        context.respond_later(authorization.runtime, _known(response))
        return None
    return access.amended(response)


def _in_slices(authorization: Authorization, context: RequestContext, refused: Any) -> Any | None:
    """The response of a request that is refused as a whole, as its handler would return it: one that is long is built
    in steps of its own, for the guard has taken its time already."""
    if not _is_long(context):
        return refused() if callable(refused) else refused
    context.respond_later(authorization.runtime, _known(refused))
    return None


def _is_long(context: RequestContext) -> bool:
    return context.size_bytes > LONG_REQUEST and context.route.build_in_slices is not None


async def _known(response: Any) -> Any:
    return response() if callable(response) else response


def _guards() -> Mapping[int, Guard]:
    from ottla.broker.authorization import cluster_guards, group_guards, topic_guards, transaction_guards

    return {
        **topic_guards.GUARDS,
        **group_guards.GUARDS,
        **transaction_guards.GUARDS,
        **cluster_guards.GUARDS,
        SASL_HANDSHAKE: _nothing,
        API_VERSIONS: _nothing,
        SASL_AUTHENTICATE: _nothing,
    }


def _nothing(access: Access, context: RequestContext, request: Any) -> None:
    """It is for clients that are not known yet."""


def _is_refused_at_top(api: Api) -> bool:
    return bool(api.needs) and all(need.top is not None for need in api.needs)


def _of_top_needs(api: Api) -> Guard:
    """Each need of the row is one of the whole request, whose response has an error of its own."""
    needs = [(AclOperation[each.operation], ResourceType[each.resource], each.top) for each in api.needs]
    (operation, kind, field), *others = needs
    if not others and field:
        return partial(_guard_named, (operation, kind), field)

    def guard(access: Access, context: RequestContext, request: Any) -> Any | None:
        for operation, kind, field in needs:
            if not access.allows(operation, kind, getattr(request, field) if field else CLUSTER_NAME):
                return refusal(context, ERROR_OF[kind])
        return None

    return guard


def _guard_named(
    need: tuple[AclOperation, ResourceType], field: str, access: Access, context: RequestContext, request: Any
) -> Any | None:
    """That of a heartbeat, which must cost little: what is known to be allowed is looked at here, without a call."""
    name = getattr(request, field)
    if name in access.view.allowed[need] or access.allows(*need, name):
        return None
    return refusal(context, ERROR_OF[need[1]])


def _refuse(access: Access, context: RequestContext, request: Any) -> Any | None:  # noqa: ARG001
    """Nothing says what it needs."""
    return refusal(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
