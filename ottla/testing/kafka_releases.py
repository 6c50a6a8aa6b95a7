"""Which versions of APIs the releases of Apache Kafka serve, and which errors they have: for what a suite uses of this
broker and would find otherwise there.

The tables are those of each release's kafka-clients: of its messages (`common/message/*.json`), APIs with the listeners
broker or zkBroker, and their last version where it is stable; and of the class `Errors`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

SHOWN: Final = 4
RELEASES: Final = ("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1")
# By API of this broker, from which release on which versions are served. The last release is the one that it follows.
_VERSIONS: Final = {
    "Produce": "3.0 0-9, 3.7 0-10, 3.8 0-11, 4.0 3-12, 4.1 3-13",
    "Fetch": "3.0 0-12, 3.1 0-13, 3.5 0-15, 3.7 0-16, 3.9 0-17, 4.0 4-17, 4.1 4-18",
    "ListOffsets": "3.0 0-7, 3.5 0-8, 3.9 0-9, 4.0 1-10",
    "Metadata": "3.0 0-11, 3.1 0-12, 4.0 0-13",
    "OffsetCommit": "3.0 0-8, 3.7 0-9, 4.0 2-9",
    "OffsetFetch": "3.0 0-8, 3.7 0-9, 4.0 1-9",
    "FindCoordinator": "3.0 0-4, 3.8 0-5, 3.9 0-6",
    "JoinGroup": "3.0 0-7, 3.2 0-9",
    "Heartbeat": "3.0 0-4",
    "LeaveGroup": "3.0 0-4, 3.2 0-5",
    "SyncGroup": "3.0 0-5",
    "DescribeGroups": "3.0 0-5, 4.0 0-6",
    "ListGroups": "3.0 0-4, 3.8 0-5",
    "SaslHandshake": "3.0 0-1",
    "ApiVersions": "3.0 0-3, 3.9 0-4",
    "CreateTopics": "3.0 0-7, 4.0 2-7",
    "DeleteTopics": "3.0 0-6, 4.0 1-6",
    "DeleteRecords": "3.0 0-2",
    "InitProducerId": "3.0 0-4, 3.8 0-5",
    "OffsetForLeaderEpoch": "3.0 0-4, 4.0 2-4",
    "AddPartitionsToTxn": "3.0 0-3, 3.6 0-4, 3.8 0-5",
    "AddOffsetsToTxn": "3.0 0-3, 3.8 0-4",
    "EndTxn": "3.0 0-3, 3.8 0-4, 4.0 0-5",
    "WriteTxnMarkers": "3.0 0-1, 4.0 1-1",
    "TxnOffsetCommit": "3.0 0-3, 3.8 0-4, 4.0 0-5",
    "DescribeAcls": "3.0 0-2, 3.3 0-3, 4.0 1-3",
    "CreateAcls": "3.0 0-2, 3.3 0-3, 4.0 1-3",
    "DeleteAcls": "3.0 0-2, 3.3 0-3, 4.0 1-3",
    "DescribeConfigs": "3.0 0-4, 4.0 1-4",
    "AlterConfigs": "3.0 0-2",
    "AlterReplicaLogDirs": "3.0 0-2, 4.0 1-2",
    "DescribeLogDirs": "3.0 0-2, 3.2 0-3, 3.3 0-4, 4.0 1-4",
    "SaslAuthenticate": "3.0 0-2",
    "CreatePartitions": "3.0 0-3",
    "DeleteGroups": "3.0 0-2",
    "ElectLeaders": "3.0 0-2",
    "IncrementalAlterConfigs": "3.0 0-1",
    "AlterPartitionReassignments": "3.0 0-0, 4.1 0-1",
    "ListPartitionReassignments": "3.0 0-0",
    "OffsetDelete": "3.0 0-0",
    "DescribeClientQuotas": "3.0 0-1",
    "AlterClientQuotas": "3.0 0-1",
    "DescribeUserScramCredentials": "3.0 0-0",
    "AlterUserScramCredentials": "3.0 0-0",
    "DescribeQuorum": "3.0 0-0, 3.3 0-1, 3.9 0-2",
    "UpdateFeatures": "3.0 0-0, 3.3 0-1, 4.0 0-2",
    "DescribeCluster": "3.0 0-0, 3.7 0-1, 4.0 0-2",
    "DescribeProducers": "3.0 0-0",
    "UnregisterBroker": "3.3 0-0",
    "DescribeTransactions": "3.0 0-0",
    "ListTransactions": "3.0 0-0, 3.8 0-1, 4.1 0-2",
    "ListConfigResources": "3.7 0-0, 4.1 0-1",
    "DescribeTopicPartitions": "3.8 0-0",
}
_NEW_ERRORS: Final = {
    "3.1": ("FETCH_SESSION_TOPIC_ID_ERROR",),
    "3.3": ("INELIGIBLE_REPLICA", "NEW_LEADER_ELECTED"),
    "3.5": ("FENCED_MEMBER_EPOCH", "OFFSET_MOVED_TO_TIERED_STORAGE", "UNRELEASED_INSTANCE_ID", "UNSUPPORTED_ASSIGNOR"),
    "3.6": ("STALE_MEMBER_EPOCH",),
    "3.7": (
        "INVALID_REGISTRATION",
        "MISMATCHED_ENDPOINT_TYPE",
        "TELEMETRY_TOO_LARGE",
        "UNKNOWN_CONTROLLER_ID",
        "UNKNOWN_SUBSCRIPTION_ID",
        "UNSUPPORTED_ENDPOINT_TYPE",
    ),
    "3.8": ("TRANSACTION_ABORTABLE",),
    "3.9": (
        "DUPLICATE_VOTER",
        "FENCED_STATE_EPOCH",
        "INVALID_RECORD_STATE",
        "INVALID_SHARE_SESSION_EPOCH",
        "INVALID_VOTER_KEY",
        "SHARE_SESSION_NOT_FOUND",
        "VOTER_NOT_FOUND",
    ),
    "4.0": ("INVALID_REGULAR_EXPRESSION", "REBOOTSTRAP_REQUIRED"),
    "4.1": (
        "SHARE_SESSION_LIMIT_REACHED",
        "STREAMS_INVALID_TOPOLOGY",
        "STREAMS_INVALID_TOPOLOGY_EPOCH",
        "STREAMS_TOPOLOGY_FENCED",
    ),
}
"""By release, the errors that those before it do not have."""


def release_of(text: str) -> str:
    """The release that `3.7` or `3.7.1` means. Raises ValueError."""
    release = ".".join(text.split(".")[:2])
    if release not in RELEASES or not text.replace(".", "").isdecimal():
        raise ValueError(f"{text!r} is no release of Kafka that is known here: {RELEASES[0]} to {RELEASES[-1]}")
    return release


def served_versions(api: str, release: str) -> range | None:
    """None: the release does not have the API."""
    found: range | None = None
    for entry in _VERSIONS[api].split(", "):
        since, _, versions = entry.partition(" ")
        if RELEASES.index(since) > RELEASES.index(release):
            break
        lowest, _, highest = versions.partition("-")
        found = range(int(lowest), int(highest) + 1)
    return found


def missing_errors(release: str) -> frozenset[str]:
    """Those that only later releases have."""
    later = RELEASES[RELEASES.index(release) + 1 :]
    return frozenset(name for each in later for name in _NEW_ERRORS.get(each, ()))


def differences(counts: Mapping[str, Mapping[str, int]], release: str) -> list[str]:
    """What of a `Coverage` the release does not have: versions of APIs with what it serves in their place, errors.
    A sentence for each."""
    missing = missing_errors(release)
    errors = sorted(key for key in counts["errors"] if key.rpartition(" ")[2] in missing)
    return [
        *(f"{key}: Kafka {release} {_has(api, release)}" for key, api in _differing(counts["apis"], release)),
        *(f"{key}: Kafka {release} has no such error" for key in errors),
    ]


def difference_line(counts: Mapping[str, Mapping[str, int]], release: str) -> str:
    """The same in short, without the software of clients."""
    keys = dict.fromkeys(key.partition(" by ")[0] for key in sorted(counts["apis"]))
    differing = [f"{key} ({_has(api, release)})" for key, api in _differing(keys, release)]
    missing = missing_errors(release)
    errors = [key for key in sorted(counts["errors"]) if key.rpartition(" ")[2] in missing]
    shown = ", ".join([*differing[:SHOWN], *errors[:SHOWN]])
    how_many = f"{len(differing)} of {len(keys)} versions of APIs and {len(errors)} errors"
    return f"{how_many} are not those of Kafka {release}{f': {shown}' if shown else ''}"


def _differing(keys: Iterable[str], release: str) -> list[tuple[str, str]]:
    """Of `API vVERSION` and what may follow it, those that are not served, each with its API."""
    found: list[tuple[str, str]] = []
    for key in sorted(keys):
        api, version = key.split(" ")[:2]
        served = served_versions(api, release)
        if served is None or int(version.removeprefix("v")) not in served:
            found.append((key, api))
    return found


def _has(api: str, release: str) -> str:
    served = served_versions(api, release)
    return "does not have it" if served is None else f"has v{served[0]} to v{served[-1]}"
