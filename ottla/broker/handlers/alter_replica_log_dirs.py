"""AlterReplicaLogDirs: replicas move to another directory of this broker (KIP-113).

There is one directory, so no replica ever moves: where it is already, it may stay.
"""

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, InvalidTopicException, KafkaError, error_for
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.storage.log_directory import FILE_NAME_BYTES_MAX, LogDirectory

# What Kafka appends to TOPIC-PARTITION for the directory that a replica moves to (KAFKA-4893).
_SUFFIX_BYTES = len(".0123456789abcdef0123456789abcdef-future")


def handle(
    replicas: ReplicaManager,
    log_directory: LogDirectory,
    context: RequestContext,  # noqa: ARG001
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse:
    # As in Kafka, of a partition that is named twice the last directory counts.
    wished = {
        (topic.name, index): each.path for each in request.dirs for topic in each.topics for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wished.items():
        code = _outcome(replicas, log_directory, name, index, path)
        of_topic = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        of_topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(code)))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _outcome(replicas: ReplicaManager, log_directory: LogDirectory, name: str, index: int, path: str) -> ErrorCode:
    try:
        if len(f"{name}-{index}") + _SUFFIX_BYTES > FILE_NAME_BYTES_MAX:
            raise InvalidTopicException("the name of the topic is too long to move a replica")
        if path != log_directory.name:
            raise error_for(ErrorCode.LOG_DIR_NOT_FOUND, f"this broker has no directory {path}")
        replicas.partition(name, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
