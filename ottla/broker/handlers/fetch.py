"""Fetch: batches from partitions, at once or when there are enough of them.

v4 isolation level, v5 log start offset, v7 sessions (KIP-227), v9 the client's leader epoch, v10 zstd, v11 rack, v12
flexible, with the epoch of the last fetched record, v13 topic ids instead of names, v15 the replica's state apart.
"""

from ottla.broker.context import RequestContext
from ottla.broker.delayed_fetch import DelayedFetch
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.replication.fetch_session import FetchContext, FetchTarget, PartitionKey

TOPIC_IDS_SINCE = 13


def handle(context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    broker = context.broker
    fetch = _begin(context, request)
    if fetch.error:
        return FetchResponse(error_code=int(fetch.error))
    operation = DelayedFetch(
        context,
        fetch,
        deadline_ms=broker.clock.now_ms() + max(request.max_wait_ms, 0),
        min_bytes=request.min_bytes if request.max_wait_ms > 0 else 0,
        max_bytes=min(request.max_bytes, broker.config.fetch_max_bytes),
        isolation_level=request.isolation_level,
        replica_id=_replica_id(request),
    )
    return operation.start()


def _begin(context: RequestContext, request: FetchRequest) -> FetchContext:
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    image = context.broker.image
    targets: list[FetchTarget] = []
    for topic in request.topics:
        name = topic.topic
        if uses_topic_ids:
            known = image.topic_by_id(topic.topic_id)
            name = "" if known is None else known.name
        targets += [
            FetchTarget(
                name,
                topic.topic_id,
                asked.partition,
                fetch_offset=asked.fetch_offset,
                max_bytes=asked.partition_max_bytes,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                uses_topic_ids=uses_topic_ids,
            )
            for asked in topic.partitions
        ]
    forgotten: list[PartitionKey] = [
        (topic.topic_id if uses_topic_ids else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return context.broker.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        targets,
        forgotten,
        uses_topic_ids=uses_topic_ids,
        is_follower=_replica_id(request) >= 0,
        now_ms=context.broker.clock.now_ms(),
    )


def _replica_id(request: FetchRequest) -> int:
    """The claim of the caller to be a follower (§3.4); v15 moved it."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id
