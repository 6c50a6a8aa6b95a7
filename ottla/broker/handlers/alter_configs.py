"""AlterConfigs: the configs of a resource are replaced as a whole. Long deprecated, still sent by older clients."""

from ottla.broker.config.alter import replaced
from ottla.broker.handlers.config_resources import Answers, alter_resources
from ottla.broker.metadata.topic_commands import TopicService
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

ANSWERS = Answers(AlterConfigsResponse, AlterConfigsResourceResponse)


def handle(
    topics: TopicService, runtime: Runtime, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse | None:
    def new_configs(resource: AlterConfigsResource) -> dict[str, str]:
        return replaced([(config.name, config.value) for config in resource.configs])

    return alter_resources(topics, runtime.node_id, context, request, new_configs, ANSWERS)
