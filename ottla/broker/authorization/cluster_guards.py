"""Guards of the APIs by which a cluster is administered: topics, configs, replicas, users, ACLs (§62.5)."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.authorization.access import Access
from ottla.broker.authorization.refusals import ERROR_OF, SENTENCE_OF, count_refusals
from ottla.broker.authorization.topic_guards import cluster_operations
from ottla.broker.config.alter import ConfigResourceType
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import ZERO_ID
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_client_quotas,
    describe_configs,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopicResult
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType

TOPIC_CODE = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
CLUSTER_CODE = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
NOT_ALLOWED = SENTENCE_OF[ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
TOPIC_NOT_ALLOWED = SENTENCE_OF[ErrorCode.TOPIC_AUTHORIZATION_FAILED]
_RESOURCE_OF_CONFIGS: Mapping[int, ResourceType] = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
    ConfigResourceType.GROUP: ResourceType.GROUP,
}


# Topics.


def guard_create_topics(access: Access, context: RequestContext, request: CreateTopicsRequest) -> None:
    # One that is named twice is refused whatever it is.
    times = Counter(topic.name for topic in request.topics)
    if not access.allows_cluster(AclOperation.CREATE, is_logged=False):
        once = [name for name, count in times.items() if count == 1]
        denied = access.denied_names(AclOperation.CREATE, ResourceType.TOPIC, once)
        request.topics = [topic for topic in request.topics if topic.name not in denied]
        refused = [name for name in once if name in denied]
        count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(refused))
        access.amend(lambda response: response.topics.extend(map(_refused_topic_creation, refused)))
    access.amend(lambda response: _hide_configs(access, response))


def _refused_topic_creation(name: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=TOPIC_CODE, error_message="Authorization failed.")


def _hide_configs(access: Access, response: CreateTopicsResponse) -> None:
    names = [topic.name for topic in response.topics if not topic.error_code]
    denied = access.denied_names(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, is_logged=False)
    for topic in response.topics:
        if not topic.error_code and topic.name in denied:
            topic.topic_config_error_code = TOPIC_CODE
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


def guard_delete_topics(access: Access, context: RequestContext, request: DeleteTopicsRequest) -> None:
    """Of topics that may not be described, the answer to a name has no id, and that to an id no name. Versions name
    topics in one of two fields."""
    if access.allows_cluster(AclOperation.DELETE, is_logged=False):
        return
    refused: list[DeletableTopicResult] = []

    def is_refused(name: str | None, topic_id: bytes) -> bool:
        result = _refused_topic_deletion(access, name, topic_id)
        if result is not None:
            refused.append(result)
        return result is not None

    request.topics = [each for each in request.topics if not is_refused(each.name, each.topic_id)]
    request.topic_names = [each for each in request.topic_names if not is_refused(each, ZERO_ID)]
    if refused:
        count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(refused))
        access.amend(lambda response: response.responses.extend(refused))


def _refused_topic_deletion(access: Access, name: str | None, topic_id: bytes) -> DeletableTopicResult | None:
    """None also for a request that is wrong in itself, and for an unknown id, which is no secret."""
    by_id = name is None
    if by_id:
        topic = access.image.topic_by_id(topic_id)
        known = None if topic is None else topic.name
    else:
        known = name if topic_id == ZERO_ID else None
    if known is None:
        return None
    may_describe = access.allows_topic(AclOperation.DESCRIBE, known)
    if may_describe and (access.allows_topic(AclOperation.DELETE, known) or access.image.topic(known) is None):
        return None
    shown_id = topic_id
    if may_describe and (topic := access.image.topic(known)) is not None:
        shown_id = topic.topic_id
    return DeletableTopicResult(
        name=known if may_describe or not by_id else None,
        topic_id=shown_id,
        error_code=TOPIC_CODE,
        error_message=TOPIC_NOT_ALLOWED,
    )


def guard_create_partitions(access: Access, context: RequestContext, request: CreatePartitionsRequest) -> None:
    times = Counter(topic.name for topic in request.topics)
    once = [name for name, count in times.items() if count == 1]
    denied = access.denied_names(AclOperation.ALTER, ResourceType.TOPIC, once)
    if denied:
        request.topics = [topic for topic in request.topics if topic.name not in denied]
        refused = [CreatePartitionsTopicResult(name=name, error_code=TOPIC_CODE) for name in once if name in denied]
        count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(refused))
        access.amend(lambda response: response.results.extend(refused))


# Configs.


def _of_configs(
    operation: AclOperation, results: str, result: Callable[..., Any]
) -> Callable[[Access, RequestContext, Any], None]:
    """`results`: the field of the response that has one `result` for each resource."""

    def guard(access: Access, context: RequestContext, request: Any) -> None:
        kinds = [_RESOURCE_OF_CONFIGS.get(each.resource_type) for each in request.resources]
        names: dict[ResourceType, list[str]] = {}
        for kind, resource in zip(kinds, request.resources, strict=True):
            # A type that there is not is answered as such.
            if kind is not None:
                names.setdefault(kind, []).append(_name_of(kind, resource))
        denied = {kind: access.denied_names(operation, kind, of_kind) for kind, of_kind in names.items()}
        if not any(denied.values()):
            return
        refused: list[Any] = []
        left: list[Any] = []
        for kind, resource in zip(kinds, request.resources, strict=True):
            is_refused = kind is not None and _name_of(kind, resource) in denied[kind]
            (refused if is_refused else left).append(resource)
        request.resources = left
        for resource in refused:
            count_refusals(context, _code_of(resource), 1)
        access.amend(lambda response: getattr(response, results).extend(map(refusal_of, refused)))

    def refusal_of(resource: Any) -> Any:
        code = _code_of(resource)
        return result(
            error_code=int(code),
            error_message=SENTENCE_OF[code],
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    return guard


def _code_of(resource: Any) -> ErrorCode:
    return ERROR_OF[_RESOURCE_OF_CONFIGS[resource.resource_type]]


def _name_of(kind: ResourceType, resource: Any) -> str:
    return CLUSTER_NAME if kind is ResourceType.CLUSTER else str(resource.resource_name)


def guard_describe_cluster(access: Access, context: RequestContext, request: Any) -> None:  # noqa: ARG001
    if request.include_cluster_authorized_operations:

        def set_operations(response: Any) -> None:
            if not response.error_code:
                response.cluster_authorized_operations = cluster_operations(access)

        access.amend(set_operations)


# Requests that need the cluster alone, whose response says so of each thing they name.


def _of_cluster(
    operation: AclOperation, refused: Callable[[Any], Any]
) -> Callable[[Access, RequestContext, Any], Any | None]:
    def guard(access: Access, context: RequestContext, request: Any) -> Any | None:
        if access.allows_cluster(operation):
            return None
        count_refusals(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1)
        return refused(request)

    return guard


def _refused_log_dirs(request: Any) -> Any:
    indexes: dict[str, list[int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            indexes.setdefault(topic.name, []).extend(topic.partitions)
    messages = alter_replica_log_dirs
    return messages.AlterReplicaLogDirsResponse(
        results=[
            messages.AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    messages.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=CLUSTER_CODE)
                    for index in of_topic
                ],
            )
            for name, of_topic in indexes.items()
        ]
    )


def _refused_elections(request: Any) -> Any:
    response = elect_leaders.ElectLeadersResponse(error_code=CLUSTER_CODE)
    response.replica_election_results = [
        elect_leaders.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                elect_leaders.PartitionResult(partition_id=index, error_code=CLUSTER_CODE, error_message=NOT_ALLOWED)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return response


def _refused_reassignments(request: Any) -> Any:
    response = alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        error_code=CLUSTER_CODE, error_message=NOT_ALLOWED
    )
    messages = alter_partition_reassignments
    response.responses = [
        messages.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                messages.ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=CLUSTER_CODE, error_message=NOT_ALLOWED
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return response


def _refused_users(request: Any) -> Any:
    response = describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
        error_code=CLUSTER_CODE, error_message=NOT_ALLOWED
    )
    response.results = [
        # As in Kafka, without their names.
        describe_user_scram_credentials.DescribeUserScramCredentialsResult(
            error_code=CLUSTER_CODE, error_message=NOT_ALLOWED
        )
        for _ in request.users or ()
    ]
    return response


def _refused_user_changes(request: Any) -> Any:
    messages = alter_user_scram_credentials
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return messages.AlterUserScramCredentialsResponse(
        results=[
            messages.AlterUserScramCredentialsResult(user=user, error_code=CLUSTER_CODE, error_message=NOT_ALLOWED)
            for user in users
        ]
    )


def _refused_quotas(request: Any) -> Any:  # noqa: ARG001
    return describe_client_quotas.DescribeClientQuotasResponse(
        error_code=CLUSTER_CODE, error_message=NOT_ALLOWED, entries=None
    )


def _refused_quota_changes(request: Any) -> Any:
    messages = alter_client_quotas
    return messages.AlterClientQuotasResponse(
        entries=[
            messages.EntryResult(
                error_code=CLUSTER_CODE,
                error_message=NOT_ALLOWED,
                entity=[
                    messages.EntityResult(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _refused_creations(request: Any) -> Any:
    result = create_acls.AclCreationResult(error_code=CLUSTER_CODE, error_message=NOT_ALLOWED)
    return create_acls.CreateAclsResponse(results=[result] * len(request.creations))


def _refused_deletions(request: Any) -> Any:
    result = delete_acls.DeleteAclsFilterResult(error_code=CLUSTER_CODE, error_message=NOT_ALLOWED)
    return delete_acls.DeleteAclsResponse(filter_results=[result] * len(request.filters))


GUARDS: dict[int, Callable[[Access, RequestContext, Any], Any | None]] = {
    19: guard_create_topics,
    20: guard_delete_topics,
    30: _of_cluster(AclOperation.ALTER, _refused_creations),
    31: _of_cluster(AclOperation.ALTER, _refused_deletions),
    32: _of_configs(AclOperation.DESCRIBE_CONFIGS, "results", describe_configs.DescribeConfigsResult),
    33: _of_configs(AclOperation.ALTER_CONFIGS, "responses", alter_configs.AlterConfigsResourceResponse),
    34: _of_cluster(AclOperation.ALTER, _refused_log_dirs),
    37: guard_create_partitions,
    43: _of_cluster(AclOperation.ALTER, _refused_elections),
    44: _of_configs(AclOperation.ALTER_CONFIGS, "responses", incremental_alter_configs.AlterConfigsResourceResponse),
    45: _of_cluster(AclOperation.ALTER, _refused_reassignments),
    48: _of_cluster(AclOperation.DESCRIBE_CONFIGS, _refused_quotas),
    49: _of_cluster(AclOperation.ALTER_CONFIGS, _refused_quota_changes),
    50: _of_cluster(AclOperation.DESCRIBE, _refused_users),
    51: _of_cluster(AclOperation.ALTER, _refused_user_changes),
    60: guard_describe_cluster,
}
