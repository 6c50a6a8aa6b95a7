"""Guards of the APIs about groups and their offsets (§62.3). Those whose response has one error for everything have
none of their own (`Need.top`)."""

from collections.abc import Callable
from typing import Any

from ottla.broker.authorization.access import Access
from ottla.broker.authorization.refusals import SENTENCE_OF, count_refusals, refusal
from ottla.broker.server.request_context import NOT_ASKED, RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.security.acl import AclOperation, ResourceType

GROUP_CODE = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
TOPIC_CODE = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
SEVERAL_GROUPS_SINCE = 8
ERROR_OF_ALL_SINCE = 2
SEVERAL_KEYS_SINCE = 4
# The protocol may be null.
NO_PROTOCOL_SINCE = 7
NO_OFFSET = -1
NO_NODE = -1


# Offsets.


def guard_offset_commit(
    access: Access, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | None:
    if not access.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        count_refusals(context, ErrorCode.GROUP_AUTHORIZATION_FAILED, 1)
        return OffsetCommitResponse(topics=[_refused_commit(topic, GROUP_CODE) for topic in request.topics])
    denied = access.take_denied(AclOperation.READ, ResourceType.TOPIC, request.topics, _name)
    if denied:
        count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(denied))
        access.amend(lambda response: response.topics.extend(_refused_commit(topic, TOPIC_CODE) for topic in denied))
    return None


def _refused_commit(topic: Any, code: int) -> OffsetCommitResponseTopic:
    partitions = [
        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, partitions=partitions)


def guard_offset_delete(
    access: Access, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | None:
    if not access.allows(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return refusal(context, ErrorCode.GROUP_AUTHORIZATION_FAILED)  # type: ignore[no-any-return]
    denied = access.take_denied(AclOperation.READ, ResourceType.TOPIC, request.topics, _name)
    if denied:
        count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(denied))

        def add_refused(response: OffsetDeleteResponse) -> None:
            if not response.error_code:
                response.topics.extend(map(_refused_deletion, denied))

        access.amend(add_refused)
    return None


def _refused_deletion(topic: Any) -> OffsetDeleteResponseTopic:
    partitions = [
        OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=TOPIC_CODE)
        for each in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


def guard_offset_fetch(
    access: Access, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | None:
    if context.api_version >= SEVERAL_GROUPS_SINCE:
        return _guard_several_groups(access, context, request)
    if not access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id):
        count_refusals(context, ErrorCode.GROUP_AUTHORIZATION_FAILED, 1)
        if context.api_version >= ERROR_OF_ALL_SINCE:
            return OffsetFetchResponse(error_code=GROUP_CODE)
        topics = [_unfetched(topic, GROUP_CODE, *_ONE_GROUP) for topic in request.topics or ()]
        return OffsetFetchResponse(topics=topics)
    access.amend(_guard_fetched_topics(access, context, request, _ONE_GROUP))
    return None


def _guard_several_groups(
    access: Access, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | None:
    denied = access.take_denied(
        AclOperation.DESCRIBE, ResourceType.GROUP, request.groups, lambda group: str(group.group_id)
    )
    refused = [OffsetFetchResponseGroup(group_id=each.group_id, error_code=GROUP_CODE) for each in denied]
    count_refusals(context, ErrorCode.GROUP_AUTHORIZATION_FAILED, len(refused))
    amendments = [_guard_fetched_topics(access, context, each, _SEVERAL_GROUPS) for each in request.groups]
    if not request.groups:
        return OffsetFetchResponse(groups=refused)

    def amend(response: OffsetFetchResponse) -> None:
        for group, amendment in zip(response.groups, amendments, strict=True):
            amendment(group)
        response.groups.extend(refused)

    access.amend(amend)
    return None


_Classes = tuple[Callable[..., Any], Callable[..., Any]]
_ONE_GROUP: _Classes = (OffsetFetchResponseTopic, OffsetFetchResponsePartition)
_SEVERAL_GROUPS: _Classes = (OffsetFetchResponseTopics, OffsetFetchResponsePartitions)


def _guard_fetched_topics(
    access: Access, context: RequestContext, asked: Any, classes: _Classes
) -> Callable[[Any], None]:
    """What is done to the answer about a group: topics that were named are refused, others left out."""
    if asked.topics is None:
        return lambda answer: _drop_denied_topics(access, answer)
    denied = access.take_denied(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.topics, _name)
    count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(denied))
    has_code_of_all = context.api_version >= ERROR_OF_ALL_SINCE

    def add_refused(answer: Any) -> None:
        if not answer.error_code or not has_code_of_all:
            code = answer.error_code or TOPIC_CODE
            answer.topics.extend(_unfetched(topic, code, *classes) for topic in denied)

    return add_refused


def _drop_denied_topics(access: Access, answer: Any) -> None:
    names = [topic.name for topic in answer.topics]
    denied = access.denied_names(AclOperation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
    answer.topics[:] = [topic for topic in answer.topics if topic.name not in denied]


def _unfetched(topic: Any, code: int, topic_class: Callable[..., Any], partition_class: Callable[..., Any]) -> Any:
    partitions = [
        partition_class(
            partition_index=index,
            committed_offset=NO_OFFSET,
            committed_leader_epoch=NO_OFFSET,
            metadata="",
            error_code=code,
        )
        for index in topic.partition_indexes
    ]
    return topic_class(name=topic.name, partitions=partitions)


def _name(topic: Any) -> str:
    return str(topic.name)


# Groups.


def guard_join_group(access: Access, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
    if access.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return None
    count_refusals(context, ErrorCode.GROUP_AUTHORIZATION_FAILED, 1)
    no_protocol = None if context.api_version >= NO_PROTOCOL_SINCE else ""
    return JoinGroupResponse(error_code=GROUP_CODE, protocol_name=no_protocol)


def guard_find_coordinator(
    access: Access, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | None:
    keys = request.coordinator_keys if context.api_version >= SEVERAL_KEYS_SINCE else [request.key]
    code, denied = _denied_keys(access, request.key_type, keys)
    if not denied:
        return None
    count_refusals(context, code, len(denied))
    if context.api_version < SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(
            error_code=int(code), error_message=SENTENCE_OF[code], node_id=NO_NODE, host="", port=NO_NODE
        )
    refused = [_not_found(key, code) for key in keys if key in denied]
    request.coordinator_keys = [key for key in keys if key not in denied]
    if not request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=refused)
    access.amend(lambda response: response.coordinators.extend(refused))
    return None


def _denied_keys(access: Access, key_type: int, keys: list[str]) -> tuple[ErrorCode, set[str]]:
    if key_type == 0:
        kind, code = ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif key_type == 1:
        kind, code = ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        # Of share groups; and of a type that there is not, about which the others learn nothing either.
        allowed = access.allows_cluster(AclOperation.CLUSTER_ACTION)
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, set() if allowed else set(keys)
    return code, access.denied_names(AclOperation.DESCRIBE, kind, keys)


def _not_found(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=int(code), error_message=SENTENCE_OF[code]
    )


def guard_describe_groups(access: Access, context: RequestContext, request: DescribeGroupsRequest) -> None:
    denied = access.take_denied(AclOperation.DESCRIBE, ResourceType.GROUP, request.groups, str)
    refused = [DescribedGroup(error_code=GROUP_CODE, group_id=group_id) for group_id in denied]
    count_refusals(context, ErrorCode.GROUP_AUTHORIZATION_FAILED, len(refused))

    def amend(response: Any) -> None:
        for group in response.groups:
            if group.authorized_operations == NOT_ASKED:
                continue
            is_shown = not group.error_code
            operations = access.operations(ResourceType.GROUP, group.group_id) if is_shown else NOT_ASKED
            group.authorized_operations = operations
        response.groups.extend(refused)

    access.amend(amend)


def guard_list_groups(access: Access, context: RequestContext, request: ListGroupsRequest) -> None:  # noqa: ARG001
    if access.allows_cluster(AclOperation.DESCRIBE, is_logged=False):
        return

    access.amend(
        lambda response: access.drop_denied(
            AclOperation.DESCRIBE, ResourceType.GROUP, response.groups, lambda group: str(group.group_id)
        )
    )


def guard_delete_groups(access: Access, context: RequestContext, request: DeleteGroupsRequest) -> None:
    denied = access.take_denied(AclOperation.DELETE, ResourceType.GROUP, request.groups_names, str)
    if denied:
        refused = [DeletableGroupResult(group_id=each, error_code=GROUP_CODE) for each in dict.fromkeys(denied)]
        count_refusals(context, ErrorCode.GROUP_AUTHORIZATION_FAILED, len(refused))
        access.amend(lambda response: response.results.extend(refused))


GUARDS: dict[int, Callable[[Access, RequestContext, Any], Any | None]] = {
    8: guard_offset_commit,
    9: guard_offset_fetch,
    10: guard_find_coordinator,
    11: guard_join_group,
    15: guard_describe_groups,
    16: guard_list_groups,
    42: guard_delete_groups,
    47: guard_offset_delete,
}
