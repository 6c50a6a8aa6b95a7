"""The table of APIs: one row per API, and the row is the only registration.

ApiVersions, the version check, docs/apis.md and the tests of the wire are made from these rows. The
messages and the handler of a row are imported when its first request arrives: a broker that has just started should
not pay for APIs that no client has called.
"""

from importlib import import_module
from typing import Any, NamedTuple


class Need(NamedTuple):
    """What the sender of a request must be allowed to, where an authorizer is configured (§62): an operation on a
    type of resource, by Kafka's names."""

    operation: str
    resource: str
    of: str = ""
    """Of which resources that the request names, or on which condition, in words."""
    top: str | None = None
    """The whole request is refused, by the error of the response: the field that names the resource, empty for the
    cluster. None: a guard of the API's own refuses what the request names."""
    instead: tuple[str, str] | None = None
    """Another operation and type that suffice."""

    def __str__(self) -> str:
        needed = f"{self.operation} {self.resource}"
        if self.instead is not None:
            needed += f" or {' '.join(self.instead)}"
        return f"{needed} ({self.of})" if self.of else needed


class Api(NamedTuple):
    key: int
    name: str
    module: str
    """Module name of the messages and of the handler."""
    min_version: int
    max_version: int
    advertised_min: int | None = None
    """The lowest version that ApiVersions claims, where that is not the lowest one served."""
    needs: tuple[Need, ...] = ()
    """What is enforced where an authorizer is configured, in this order."""

    def request_class(self) -> Any:
        return getattr(import_module(f"ottla.protocol.messages.{self.module}"), f"{self.name}Request")

    def response_class(self) -> Any:
        return getattr(import_module(f"ottla.protocol.messages.{self.module}"), f"{self.name}Response")

    def handler(self) -> Any:
        return import_module(f"ottla.broker.handlers.{self.module}").handle

    @property
    def lowest_advertised(self) -> int:
        return self.min_version if self.advertised_min is None else self.advertised_min


PRODUCE = 0
FETCH = 1
METADATA = 3
JOIN_GROUP = 11
SYNC_GROUP = 14
SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36

_CREATE = ("CREATE", "TOPIC")
_DESCRIBE_TOPIC = Need("DESCRIBE", "TOPIC", "of each topic")
_READ_TOPIC = Need("READ", "TOPIC", "of each topic")
_READ_GROUP = Need("READ", "GROUP", top="group_id")
_WRITE_ID = Need("WRITE", "TRANSACTIONAL_ID", top="transactional_id")
_ALTER_CLUSTER = Need("ALTER", "CLUSTER")
_DESCRIBE_CLUSTER = Need("DESCRIBE", "CLUSTER")
_CONFIGS_DESCRIBED = (
    Need("DESCRIBE_CONFIGS", "CLUSTER", "of brokers, their loggers, client metrics"),
    Need("DESCRIBE_CONFIGS", "TOPIC", "of each topic"),
    Need("DESCRIBE_CONFIGS", "GROUP", "of each group"),
)
_CONFIGS_ALTERED = (
    Need("ALTER_CONFIGS", "CLUSTER", "of brokers, their loggers, client metrics"),
    Need("ALTER_CONFIGS", "TOPIC", "of each topic"),
    Need("ALTER_CONFIGS", "GROUP", "of each group"),
)

_ROWS = (
    # librdkafka up to 2.11.0 looks for Produce v0 before it compresses with gzip, snappy or lz4 (KAFKA-18659).
    Api(
        PRODUCE,
        "Produce",
        "produce",
        3,
        13,
        advertised_min=0,
        needs=(
            Need("WRITE", "TRANSACTIONAL_ID", "with transactional batches"),
            Need("WRITE", "TOPIC", "of each topic"),
        ),
    ),
    Api(FETCH, "Fetch", "fetch", 4, 18, needs=(Need("CLUSTER_ACTION", "CLUSTER", "as a follower"), _READ_TOPIC)),
    Api(2, "ListOffsets", "list_offsets", 1, 10, needs=(_DESCRIBE_TOPIC,)),
    Api(
        METADATA,
        "Metadata",
        "metadata",
        0,
        13,
        needs=(
            _DESCRIBE_TOPIC,
            Need("CREATE", "CLUSTER", "of topics that are created", instead=_CREATE),
            Need("DESCRIBE", "CLUSTER", "for the cluster's authorized operations"),
        ),
    ),
    Api(8, "OffsetCommit", "offset_commit", 2, 9, needs=(Need("READ", "GROUP"), _READ_TOPIC)),
    Api(9, "OffsetFetch", "offset_fetch", 1, 9, needs=(Need("DESCRIBE", "GROUP", "of each group"), _DESCRIBE_TOPIC)),
    Api(
        10,
        "FindCoordinator",
        "find_coordinator",
        0,
        6,
        needs=(
            Need("DESCRIBE", "GROUP", "of each group"),
            Need("DESCRIBE", "TRANSACTIONAL_ID", "of each transactional id"),
            Need("CLUSTER_ACTION", "CLUSTER", "of share groups' partitions"),
        ),
    ),
    Api(JOIN_GROUP, "JoinGroup", "join_group", 0, 9, needs=(_READ_GROUP,)),
    Api(12, "Heartbeat", "heartbeat", 0, 4, needs=(_READ_GROUP,)),
    Api(13, "LeaveGroup", "leave_group", 0, 5, needs=(_READ_GROUP,)),
    Api(SYNC_GROUP, "SyncGroup", "sync_group", 0, 5, needs=(_READ_GROUP,)),
    Api(15, "DescribeGroups", "describe_groups", 0, 6, needs=(Need("DESCRIBE", "GROUP", "of each group"),)),
    Api(
        16,
        "ListGroups",
        "list_groups",
        0,
        5,
        needs=(Need("DESCRIBE", "CLUSTER", "of each group", instead=("DESCRIBE", "GROUP")),),
    ),
    Api(SASL_HANDSHAKE, "SaslHandshake", "sasl_handshake", 0, 1),
    Api(API_VERSIONS, "ApiVersions", "api_versions", 0, 4),
    Api(
        19,
        "CreateTopics",
        "create_topics",
        2,
        7,
        needs=(
            Need("CREATE", "CLUSTER", "of each topic", instead=_CREATE),
            Need("DESCRIBE_CONFIGS", "TOPIC", "for the configs of each topic in the response"),
        ),
    ),
    Api(
        20,
        "DeleteTopics",
        "delete_topics",
        1,
        6,
        needs=(Need("DELETE", "CLUSTER", "of each topic", instead=("DELETE", "TOPIC")),),
    ),
    Api(21, "DeleteRecords", "delete_records", 0, 2, needs=(Need("DELETE", "TOPIC", "of each topic"),)),
    Api(
        22,
        "InitProducerId",
        "init_producer_id",
        0,
        5,
        needs=(
            Need("WRITE", "TRANSACTIONAL_ID", "with a transactional id"),
            Need("IDEMPOTENT_WRITE", "CLUSTER", "without one; some topic will do", instead=("WRITE", "TOPIC")),
        ),
    ),
    Api(
        23,
        "OffsetForLeaderEpoch",
        "offset_for_leader_epoch",
        2,
        4,
        needs=(Need("CLUSTER_ACTION", "CLUSTER", "of each topic", instead=("DESCRIBE", "TOPIC")),),
    ),
    # v2 is of Kafka 4.2.
    Api(
        24,
        "AddPartitionsToTxn",
        "add_partitions_to_txn",
        0,
        5,
        needs=(
            Need("WRITE", "TRANSACTIONAL_ID", "versions 0 to 3"),
            Need("WRITE", "TOPIC", "of each topic, versions 0 to 3"),
            Need("CLUSTER_ACTION", "CLUSTER", "versions 4 and 5"),
        ),
    ),
    Api(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, needs=(_WRITE_ID, _READ_GROUP)),
    Api(26, "EndTxn", "end_txn", 0, 5, needs=(_WRITE_ID,)),
    Api(
        27,
        "WriteTxnMarkers",
        "write_txn_markers",
        1,
        2,
        needs=(Need("ALTER", "CLUSTER", instead=("CLUSTER_ACTION", "CLUSTER")),),
    ),
    Api(
        28,
        "TxnOffsetCommit",
        "txn_offset_commit",
        0,
        5,
        needs=(Need("WRITE", "TRANSACTIONAL_ID"), Need("READ", "GROUP"), _READ_TOPIC),
    ),
    Api(29, "DescribeAcls", "describe_acls", 1, 3, needs=(_DESCRIBE_CLUSTER._replace(top=""),)),
    Api(30, "CreateAcls", "create_acls", 1, 3, needs=(_ALTER_CLUSTER,)),
    Api(31, "DeleteAcls", "delete_acls", 1, 3, needs=(_ALTER_CLUSTER,)),
    Api(32, "DescribeConfigs", "describe_configs", 1, 4, needs=_CONFIGS_DESCRIBED),
    Api(33, "AlterConfigs", "alter_configs", 0, 2, needs=_CONFIGS_ALTERED),
    Api(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2, needs=(_ALTER_CLUSTER,)),
    Api(35, "DescribeLogDirs", "describe_log_dirs", 1, 4, needs=(_DESCRIBE_CLUSTER._replace(top=""),)),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", "sasl_authenticate", 0, 2),
    Api(37, "CreatePartitions", "create_partitions", 0, 3, needs=(Need("ALTER", "TOPIC", "of each topic"),)),
    Api(42, "DeleteGroups", "delete_groups", 0, 2, needs=(Need("DELETE", "GROUP", "of each group"),)),
    Api(43, "ElectLeaders", "elect_leaders", 0, 2, needs=(_ALTER_CLUSTER,)),
    Api(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, needs=_CONFIGS_ALTERED),
    Api(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, needs=(_ALTER_CLUSTER,)),
    Api(
        46,
        "ListPartitionReassignments",
        "list_partition_reassignments",
        0,
        0,
        needs=(_DESCRIBE_CLUSTER._replace(top=""),),
    ),
    Api(47, "OffsetDelete", "offset_delete", 0, 0, needs=(Need("DELETE", "GROUP"), _READ_TOPIC)),
    Api(
        48,
        "DescribeClientQuotas",
        "describe_client_quotas",
        0,
        1,
        needs=(Need("DESCRIBE_CONFIGS", "CLUSTER"),),
    ),
    Api(49, "AlterClientQuotas", "alter_client_quotas", 0, 1, needs=(Need("ALTER_CONFIGS", "CLUSTER"),)),
    Api(
        50,
        "DescribeUserScramCredentials",
        "describe_user_scram_credentials",
        0,
        0,
        needs=(_DESCRIBE_CLUSTER,),
    ),
    Api(51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, needs=(_ALTER_CLUSTER,)),
    Api(55, "DescribeQuorum", "describe_quorum", 0, 2, needs=(_DESCRIBE_CLUSTER._replace(top=""),)),
    Api(57, "UpdateFeatures", "update_features", 0, 2, needs=(_ALTER_CLUSTER._replace(top=""),)),
    Api(
        60,
        "DescribeCluster",
        "describe_cluster",
        0,
        2,
        needs=(Need("DESCRIBE", "CLUSTER", "for the cluster's authorized operations"),),
    ),
    Api(61, "DescribeProducers", "describe_producers", 0, 0, needs=(_READ_TOPIC,)),
    Api(64, "UnregisterBroker", "unregister_broker", 0, 0, needs=(_ALTER_CLUSTER._replace(top=""),)),
    Api(
        65,
        "DescribeTransactions",
        "describe_transactions",
        0,
        0,
        needs=(Need("DESCRIBE", "TRANSACTIONAL_ID", "of each transactional id"), _DESCRIBE_TOPIC),
    ),
    Api(
        66,
        "ListTransactions",
        "list_transactions",
        0,
        2,
        needs=(Need("DESCRIBE", "TRANSACTIONAL_ID", "of each transactional id"),),
    ),
    Api(
        74,
        "ListConfigResources",
        "list_config_resources",
        0,
        1,
        needs=(Need("DESCRIBE_CONFIGS", "CLUSTER", top=""),),
    ),
    Api(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, needs=(_DESCRIBE_TOPIC,)),
)

APIS: dict[int, Api] = {api.key: api for api in _ROWS}
