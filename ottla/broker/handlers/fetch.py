"""Fetch: batches from partitions, at once or when there are enough of them.

v4 isolation level, v5 log start offset, v7 sessions (KIP-227), v9 the client's leader epoch, v10 zstd, v11 rack, v12
flexible, with the epoch of the last fetched record, v13 topic ids instead of names, v15 the replica's state apart, v16
names the leader and its address to a client that asked the wrong broker.
"""

from typing import TypeVar

from ottla.broker.replicas.delayed_fetch import DelayedFetch
from ottla.broker.replicas.delayed_follower_fetch import DelayedFollowerFetch
from ottla.broker.replicas.long_fetch import LongFetch
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import ITEMS_PER_SLICE, ONE_SLICE_BYTES, Runtime, in_slices
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.turns import ReadTurns
from ottla.cluster.image import MetadataImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.replication.fetch_session import FetchContext, FetchTarget
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.replication.partition import READ_COMMITTED, READ_UNCOMMITTED
from ottla.replication.replica_progress import PartitionKey

TOPIC_IDS_SINCE = 13

# By this id a broker of Kafka reads its own log for another directory.
FUTURE_REPLICA = -3
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
UNKNOWN_EPOCH = -1
INVALID_HIGH_WATERMARK = -1

F = TypeVar("F", bound=DelayedFetch)


def handle(
    replicas: ReplicaManager,
    fetch_sessions: FetchSessionCache,
    read_turns: ReadTurns,
    runtime: Runtime,
    context: RequestContext,
    request: FetchRequest,
) -> FetchResponse | None:
    image = replicas.image
    is_follower, replica_id, broker_epoch = _follower(request)
    if is_follower and not context.is_broker(replica_id, runtime.node_id, image):
        return _refused(image, context, request)
    # Kafka lets followers of older versions do without an epoch, and so anybody who knows a broker's number.
    if is_follower and broker_epoch != image.brokers[replica_id].epoch:
        return FetchResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    if context.size_bytes > ONE_SLICE_BYTES and not is_follower:
        parts = replicas, fetch_sessions, read_turns, runtime
        context.respond_later(runtime, _fetch_in_slices(*parts, context, request))
        return None
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    targets = [_target(image, topic, each, uses_topic_ids) for topic in request.topics for each in topic.partitions]
    now_ms = runtime.clock.now_ms()
    fetch = _begin(fetch_sessions, context, request, targets, now_ms, is_follower=is_follower)
    if fetch.error or request.isolation_level not in ISOLATION_LEVELS:
        refused = _refused_as_whole(replicas, context, request, fetch)
        if refused is not None:
            return refused
    if is_follower and fetch.session is not None:
        return DelayedFollowerFetch(
            replicas,
            runtime,
            context,
            fetch,
            replica_id=replica_id,
            broker_epoch=broker_epoch,
            deadline_ms=now_ms + max(request.max_wait_ms, 0),
            min_bytes=request.min_bytes if request.max_wait_ms > 0 else 0,
            max_bytes=request.max_bytes,
        ).start()
    if len(fetch.targets) > ITEMS_PER_SLICE:
        long = _delayed(LongFetch, replicas, read_turns, runtime, context, request, fetch, now_ms)
        context.respond_later(runtime, long.run())
        return None
    return _delayed(DelayedFetch, replicas, read_turns, runtime, context, request, fetch, now_ms).start()


async def _fetch_in_slices(
    replicas: ReplicaManager,
    fetch_sessions: FetchSessionCache,
    read_turns: ReadTurns,
    runtime: Runtime,
    context: RequestContext,
    request: FetchRequest,
) -> FetchResponse | None:
    """Of a consumer that names perhaps thousands of partitions. The request is parked."""
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    named = ((topic, each) for topic in request.topics for each in topic.partitions)
    targets = await in_slices(lambda pair: _target(replicas.image, *pair, uses_topic_ids), named)
    now_ms = runtime.clock.now_ms()
    fetch = _begin(fetch_sessions, context, request, targets, now_ms, is_follower=False)
    refused = _refused_as_whole(replicas, context, request, fetch)
    if refused is not None:
        return refused
    return await _delayed(LongFetch, replicas, read_turns, runtime, context, request, fetch, now_ms).run()


def _target(image: MetadataImage, topic: FetchTopic, asked: FetchPartition, uses_topic_ids: bool) -> FetchTarget:
    name = topic.topic
    if uses_topic_ids:
        known = image.topic_by_id(topic.topic_id)
        name = "" if known is None else known.name
    return FetchTarget(
        name,
        topic.topic_id,
        asked.partition,
        asked.fetch_offset,
        asked.partition_max_bytes,
        asked.current_leader_epoch,
        asked.last_fetched_epoch,
        asked.log_start_offset,
        uses_topic_ids,
    )


def _begin(
    fetch_sessions: FetchSessionCache,
    context: RequestContext,
    request: FetchRequest,
    targets: list[FetchTarget],
    now_ms: int,
    *,
    is_follower: bool,
) -> FetchContext:
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    forgotten: list[PartitionKey] = []
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if uses_topic_ids else topic.topic
        forgotten += [(key, index) for index in topic.partitions]
    fetch = fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        targets,
        forgotten,
        context.connection,
        context.connection.principal,
        uses_topic_ids,
        is_follower,
        now_ms,
    )
    if context.access is not None and not is_follower:
        context.access.leave_denied_out(fetch)
    return fetch


def _refused_as_whole(
    replicas: ReplicaManager, context: RequestContext, request: FetchRequest, fetch: FetchContext
) -> FetchResponse | None:
    if fetch.error:
        # It has no records, but what its client has used up it has used up.
        throttle_ms = 0 if context.quotas is None else context.quotas.fetched(context, 0)
        return FetchResponse(error_code=int(fetch.error), throttle_time_ms=throttle_ms)
    if request.isolation_level not in ISOLATION_LEVELS and any(
        replicas.find(target.topic, target.partition) for target in fetch.targets
    ):
        fetch.abandon()
        return _failed(context, request)
    return None


def _delayed(
    kind: type[F],
    replicas: ReplicaManager,
    read_turns: ReadTurns,
    runtime: Runtime,
    context: RequestContext,
    request: FetchRequest,
    fetch: FetchContext,
    now_ms: int,
) -> F:
    config, max_wait_ms, max_bytes = runtime.config, request.max_wait_ms, request.max_bytes
    if max_bytes > config.fetch_max_bytes:
        max_bytes = config.fetch_max_bytes
    waits = max_wait_ms > 0
    return kind(
        replicas,
        runtime,
        context,
        fetch,
        read_turns,
        now_ms + max_wait_ms if waits else now_ms,
        request.min_bytes if waits else 0,
        max_bytes,
        request.isolation_level if request.isolation_level == READ_UNCOMMITTED else _isolation_level(request),
        request.rack_id if config.replica_selector_class is not None else "",
    )


def _isolation_level(request: FetchRequest) -> int:
    """As in Kafka, a future replica reads all; here that ends at the high watermark, as nothing shows who asks."""
    if request.isolation_level == READ_COMMITTED and _follower(request)[1] == FUTURE_REPLICA:
        return READ_UNCOMMITTED
    return request.isolation_level


def _follower(request: FetchRequest) -> tuple[bool, int, int]:
    """Whether the caller claims to be a follower (§3.4), and with which id and broker epoch; v15 moved the one and
    brought the other."""
    if request.replica_state is None:
        return request.replica_id >= 0, request.replica_id, UNKNOWN_EPOCH
    replica_id = request.replica_state.replica_id
    return replica_id >= 0, replica_id, request.replica_state.replica_epoch


def _failed(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Where Kafka finds no name for what is asked. Versions that name topics have the error for each partition too."""
    error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    topics = [] if context.api_version >= TOPIC_IDS_SINCE else request.topics
    return FetchResponse(
        error_code=error_code,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=error_code,
                        high_watermark=INVALID_HIGH_WATERMARK,
                        records=b"",
                        aborted_transactions=[],
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _refused(image: MetadataImage, context: RequestContext, request: FetchRequest) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_refused_partition(image, context, topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )


def _refused_partition(
    image: MetadataImage, context: RequestContext, topic: FetchTopic, asked: FetchPartition
) -> PartitionData:
    """On a listener that is not inter-broker, as without the right to act as a broker; of an unknown broker, as of one
    without the replica (§15.1.4), or unknown where there is no such partition."""
    code = _refusal(image, context, topic, asked)
    is_unknown = code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return PartitionData(
        partition_index=asked.partition,
        error_code=int(code),
        high_watermark=INVALID_HIGH_WATERMARK,
        records=b"",
        aborted_transactions=[] if is_unknown else None,
    )


def _refusal(image: MetadataImage, context: RequestContext, topic: FetchTopic, asked: FetchPartition) -> ErrorCode:
    if not context.connection.is_inter_broker:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    name = topic.topic
    if context.api_version >= TOPIC_IDS_SINCE:
        known = image.topic_by_id(topic.topic_id)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = known.name
    if image.partition(name, asked.partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    has_epoch = asked.current_leader_epoch >= 0
    return ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
