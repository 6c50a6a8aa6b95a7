"""FindCoordinator: which broker serves a group (§4.2) or a transactional id (§13.1.1)."""

from typing import Any, Protocol, TypeAlias

from ottla.broker.coordinators.coordinator_loader import CoordinatorLoader
from ottla.broker.metadata.auto_topic_creation import AutoTopicCreationManager
from ottla.broker.replicas.current_leader import node_for
from ottla.broker.runtime import Runtime, in_slices
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import BrokerInfo
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
_BATCHED_FROM = 4
_SHARE_FROM = 6
# To find the partition of a long name takes up to half a millisecond.
KEYS_PER_STEP = 16


class CoordinatorShell(Protocol):
    def coordinator_of(self, name: str, /) -> BrokerInfo | None: ...


Loader: TypeAlias = CoordinatorLoader[Any, Any]


def handle(
    runtime: Runtime,
    auto_topic_creation: AutoTopicCreationManager,
    group_loader: Loader,
    transaction_loader: Loader,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse | None:
    loader = {GROUP: group_loader, TRANSACTION: transaction_loader}.get(request.key_type)
    if loader is not None and (loader.prepare() is None or _creates_topic(loader, auto_topic_creation)):
        response = _prepared_response(auto_topic_creation, loader, context, request)
        context.respond_later(runtime, response)
        return None
    if len(request.coordinator_keys) > KEYS_PER_STEP:
        context.respond_later(runtime, _long_response(loader, context, request))
        return None
    return _response(loader, context, request)


def _creates_topic(loader: Loader, auto_topic_creation: AutoTopicCreationManager) -> bool:
    """It takes a moment only. In a cluster leaders must be elected first, and the client asks again."""
    return auto_topic_creation.is_alone and not loader.topic_exists


async def _prepared_response(
    auto_topic_creation: AutoTopicCreationManager,
    loader: Loader,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    """A client that gets COORDINATOR_NOT_AVAILABLE asks again, librdkafka's after a second: so it waits here for what
    takes less."""
    await loader.prepared()
    if _creates_topic(loader, auto_topic_creation):
        await auto_topic_creation.coordinator_topic_ensured(loader.topic_name)
    if len(request.coordinator_keys) > KEYS_PER_STEP:
        return await _long_response(loader, context, request)
    return _response(loader, context, request)


async def _long_response(
    loader: Loader | None,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    keys, key_type = request.coordinator_keys, request.key_type
    found = await in_slices(lambda key: _find(loader, context, key, key_type), keys, at_once=KEYS_PER_STEP)
    return FindCoordinatorResponse(coordinators=found)


def _response(
    loader: Loader | None,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    if context.api_version >= _BATCHED_FROM:
        found = [_find(loader, context, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    only = _find(loader, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(loader: Loader | None, context: RequestContext, key: str, key_type: int) -> Coordinator:
    if loader is None:
        return _unknown(key, ErrorCode.INVALID_REQUEST, _why_not(key_type, context.api_version))
    coordinator: CoordinatorShell | None = loader.prepare()
    broker = None if coordinator is None else coordinator.coordinator_of(key)
    node = node_for(context.connection.listener_name, broker)
    if node is None:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is not available yet")
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)


def _unknown(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)


def _why_not(key_type: int, version: int) -> str:
    if key_type == SHARE and version >= _SHARE_FROM:
        return "this broker does not support share groups"
    return f"there is no key type {key_type} in version {version}"
