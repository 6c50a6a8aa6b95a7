"""What can go wrong between a command and a broker, each as one plain sentence for the user.

Exception
└── ClientError             the message is a whole sentence; a command prints it and ends with status 1
    ├── Interrupted         by Ctrl-C, and there was no orderly end; the status is 130
    ├── LoginFailed             the listener wants no login, or not this one
    ├── NoAnswer            no connection, a lost one, or no answer in time: another attempt may do
    └── Refused             the broker answered with an error code
"""

from ottla.protocol.errors import ErrorCode

# Codes that pass by themselves: a leader or coordinator is moving, loading, or being elected.
RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

WORDS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name is not valid",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not valid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is not possible",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the replicas are not possible",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "its first replica is not alive and in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that may lead is alive",
    ErrorCode.ELECTION_NOT_NEEDED: "it has that leader already",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "it is not being moved",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "it is not registered",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not have that offset",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a consumer of the group reads it; stop the consumers first",
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop its consumers first",
    ErrorCode.GROUP_ID_NOT_FOUND: "it does not exist",
    ErrorCode.INVALID_GROUP_ID: "the name is not valid",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "it does not exist",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has this transactional id, or the transaction took too long",
    ErrorCode.PRODUCER_FENCED: "a newer producer has this transactional id, or the transaction took too long",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the broker does not allow a transaction timeout as long as this",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "its coordinator has a newer epoch",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "access is denied",
    ErrorCode.UNKNOWN_MEMBER_ID: "it has members; stop its consumers first",
    ErrorCode.REBALANCE_IN_PROGRESS: "it is rebalancing; stop its consumers first",
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader at the moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is still loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "it has no coordinator at the moment",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker could not write to its disk, which may be full; its log says why",
    ErrorCode.RESOURCE_NOT_FOUND: "it does not exist",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "access is denied",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "access is denied",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "access is denied",
}


# Of a process that SIGINT has ended, as shells count it: 128 and the signal's number.
INTERRUPTED_STATUS = 130


class ClientError(Exception):
    pass


class Interrupted(ClientError):
    pass


class LoginFailed(ClientError):
    pass


class NoAnswer(ClientError):
    pass


class Refused(ClientError):
    """The broker said no to `what`."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = code
        super().__init__(f"{what}: {_explanation(code, message)}")

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE


def check(what: str, code: int, message: str | None = None) -> None:
    """Raise Refused unless `code` says that `what` went well."""
    if code != ErrorCode.NONE:
        raise Refused(what, code, message)


def _explanation(code: int, message: str | None) -> str:
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"the broker answered error {code}" + (f": {message}" if message else "")
    words = WORDS.get(known) or f"the broker answered {known.name}"
    if message and message != known.name:
        return f"{words} ({message.rstrip('.')})" if known in WORDS else f"{message.rstrip('.')} ({known.name})"
    return words
