"""What clients are told when records could not be appended (docs/semantics §4.6.1)."""

from typing import Final

from ottla.protocol.errors import ErrorCode

# REQUEST_TIMED_OUT becomes COORDINATOR_NOT_AVAILABLE, as in Kafka 4, and not REBALANCE_IN_PROGRESS or itself, as
# before: every client answers it by looking for the coordinator again and retrying, which also gives a log that has got
# stuck the pause it needs, and does least harm if the records turn out to be committed after all.
_COMMON: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE: Final = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE}


def group_error(error: ErrorCode) -> ErrorCode:
    """For joins, syncs and deletions, which store group metadata."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else _COMMON.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """For offset commits."""
    if error in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _COMMON.get(error, error)
