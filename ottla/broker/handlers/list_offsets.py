"""ListOffsets: the first, the last, or an offset by time.

v2 isolation level, v4 leader epochs, v6 flexible, v7 the largest timestamp (-3), v8 the earliest offset on local disk
(-4), v9 the latest one on remote storage (-5), v10 a timeout. §15.4
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import ONE_SLICE_BYTES, Runtime, in_slices_by_topic
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError, error_for
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.partition import Partition
from ottla.storage.log_reader import FoundTimestamp

# Kafka's `DEBUGGING_REPLICA_ID`: any replica answers for its own log.
ANY_REPLICA = -2

ISOLATION_LEVELS = (0, 1)
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

# Since which version a client can ask for it.
NEVER = 1 << 15
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

OFFSET_NOT_AVAILABLE_SINCE = 5

Lookup = Callable[[], FoundTimestamp | None]


def handle(
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | None:
    if context.size_bytes > ONE_SLICE_BYTES:
        context.respond_later(runtime, _long_response(replicas, runtime, context, request))
        return None
    repeated = _repeated(request)
    # As in Kafka, a request that is refused as a whole has its topics without partitions in the answer too.
    is_refused = request.isolation_level not in ISOLATION_LEVELS
    # Looking for a time reads the log, and may wait for the disk.
    lookups: list[tuple[Any, Lookup]] = []
    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(replicas, context, request, repeated, lookups, topic.name, asked)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions or is_refused
        ]
    )
    if not lookups:
        return response
    context.park()
    runtime.offload(partial(_look_up_all, lookups), lambda: context.complete(response))
    return None


async def _long_response(
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    repeated = _repeated(request)
    lookups: list[tuple[Any, Lookup]] = []
    asked = ((topic.name, topic.partitions) for topic in request.topics if topic.partitions)
    topics = await in_slices_by_topic(partial(_answer, replicas, context, request, repeated, lookups), asked)
    if lookups:
        await runtime.in_thread(partial(_look_up_all, lookups))
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=partitions) for name, partitions in topics]
    )


def _repeated(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            (repeated if key in seen else seen).add(key)
    return repeated


def _answer(
    replicas: ReplicaManager,
    context: RequestContext,
    request: ListOffsetsRequest,
    repeated: set[tuple[str, int]],
    lookups: list[tuple[Any, Lookup]],
    topic: str,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        if request.isolation_level not in ISOLATION_LEVELS:
            # Kafka finds no name for it.
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {request.isolation_level}")
        if (topic, asked.partition_index) in repeated:
            raise InvalidRequest(f"partition {topic}-{asked.partition_index} is asked for twice")
        if asked.timestamp < EARLIEST and context.api_version < SINCE.get(asked.timestamp, NEVER):
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {asked.timestamp} means nothing in this version")
        partition = replicas.partition(topic, asked.partition_index)
        if request.replica_id == ANY_REPLICA:
            partition.check_epoch(asked.current_leader_epoch)
        else:
            partition.check_leader(asked.current_leader_epoch)
        if _asks_as_replica(replicas, context, request):
            lookup = _find(partition, asked.timestamp, partition.log.log_end_offset, answer)
        else:
            if asked.timestamp == LATEST or asked.timestamp >= 0:
                partition.check_end_offset_is_known()
            lookup = _find(partition, asked.timestamp, partition.upper_bound(request.isolation_level), answer)
        if lookup is not None:
            lookups.append((answer, lookup))
    except KafkaError as error:
        answer.error_code = int(_code_for(error, context.api_version))
    return answer


def _asks_as_replica(replicas: ReplicaManager, context: RequestContext, request: ListOffsetsRequest) -> bool:
    """A follower that fell out of range asks for the ends of the log, and starts from them (§14.5.4). A client that
    asks each replica how far it has come gets the same."""
    return request.replica_id == ANY_REPLICA or (
        request.replica_id >= 0 and context.is_broker(request.replica_id, replicas.node_id, replicas.image)
    )


def _code_for(error: KafkaError, version: int) -> ErrorCode:
    if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error.code


def _find(partition: Partition, timestamp: int, upper_bound: int, answer: Any) -> Lookup | None:
    """Fills the answer, or returns what must be looked up for it."""
    log = partition.log
    match timestamp:
        case _ if timestamp == LATEST:
            answer.offset = upper_bound
            answer.leader_epoch = partition.leader_epoch
        case _ if timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer.offset = log.log_start_offset
            answer.leader_epoch = max(log.epochs.epoch_at(log.log_start_offset), -1)
        case _ if timestamp == LATEST_TIERED:
            # Nothing is on remote storage.
            pass
        case _ if timestamp == MAX_TIMESTAMP:
            return lambda: log.offset_of_max_timestamp(upper_bound)
        case _:
            return lambda: log.offset_for_timestamp(timestamp, upper_bound)
    return None


def _look_up_all(lookups: list[tuple[Any, Lookup]]) -> None:
    """In a thread."""
    for answer, lookup in lookups:
        _look_up(answer, lookup)


def _look_up(answer: Any, lookup: Lookup) -> None:
    try:
        found = lookup()
    except KafkaError as error:
        answer.error_code = int(error.code)
        return
    if found is not None:
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        answer.leader_epoch = found.leader_epoch
