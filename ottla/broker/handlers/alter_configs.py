"""AlterConfigs: the configs of a resource are replaced as a whole. Long deprecated, still sent by older clients."""

from ottla.broker.config.alter import replaced
from ottla.broker.handlers.config_resources import alter_resources
from ottla.broker.metadata.config_admin import ConfigAdminManager
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(
    config_admin: ConfigAdminManager,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: AlterConfigsRequest,
) -> AlterConfigsResponse:
    results = await alter_resources(config_admin, runtime, request, _new_configs, AlterConfigsResourceResponse)
    return AlterConfigsResponse(responses=results)


def _new_configs(resource: AlterConfigsResource) -> dict[str, str]:
    return replaced([(config.name, config.value) for config in resource.configs])
