"""AlterConfigs: the configs of a resource are replaced as a whole. Long deprecated, still sent by older clients."""

from ottla.broker.answer import Answer, Gathering
from ottla.broker.config.alter import replaced
from ottla.broker.context import RequestContext
from ottla.broker.handlers.altering import AlterOutcome, alter_resources
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse | None:
    answer = Answer(context)

    def done(outcomes: list[AlterOutcome]) -> None:
        answer.give(
            AlterConfigsResponse(
                responses=[
                    AlterConfigsResourceResponse(
                        error_code=outcome.error_code,
                        error_message=outcome.error_message,
                        resource_type=outcome.resource_type,
                        resource_name=outcome.resource_name,
                    )
                    for outcome in outcomes
                ]
            )
        )

    def new_configs(resource: AlterConfigsResource) -> dict[str, str]:
        return replaced([(config.name, config.value) for config in resource.configs])

    gathering = Gathering(len(request.resources), done)
    alter_resources(context, request.resources, new_configs, gathering, validate_only=request.validate_only)
    return answer.now_or_parked()
