"""The table of APIs: one row per API, and the row is the only registration.

ApiVersions, the version check, docs/apis.md and the tests of the wire are made from these rows. The
messages and the handler of a row are imported when its first request arrives: a broker that has just started should
not pay for APIs that no client has called.
"""

from importlib import import_module
from typing import Any, NamedTuple


class Api(NamedTuple):
    key: int
    name: str
    module: str
    """Module name of the messages and of the handler."""
    min_version: int
    max_version: int
    advertised_min: int | None = None
    """The lowest version that ApiVersions claims, where that is not the lowest one served."""

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
SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36

_ROWS = (
    # librdkafka up to 2.11.0 looks for Produce v0 before it compresses with gzip, snappy or lz4 (KAFKA-18659).
    Api(PRODUCE, "Produce", "produce", 3, 13, advertised_min=0),
    Api(FETCH, "Fetch", "fetch", 4, 18),
    Api(2, "ListOffsets", "list_offsets", 1, 10),
    Api(METADATA, "Metadata", "metadata", 0, 13),
    Api(8, "OffsetCommit", "offset_commit", 2, 9),
    Api(9, "OffsetFetch", "offset_fetch", 1, 9),
    Api(10, "FindCoordinator", "find_coordinator", 0, 6),
    Api(11, "JoinGroup", "join_group", 0, 9),
    Api(12, "Heartbeat", "heartbeat", 0, 4),
    Api(13, "LeaveGroup", "leave_group", 0, 5),
    Api(14, "SyncGroup", "sync_group", 0, 5),
    Api(15, "DescribeGroups", "describe_groups", 0, 6),
    Api(16, "ListGroups", "list_groups", 0, 5),
    Api(SASL_HANDSHAKE, "SaslHandshake", "sasl_handshake", 0, 1),
    Api(API_VERSIONS, "ApiVersions", "api_versions", 0, 4),
    Api(19, "CreateTopics", "create_topics", 2, 7),
    Api(20, "DeleteTopics", "delete_topics", 1, 6),
    Api(21, "DeleteRecords", "delete_records", 0, 2),
    Api(22, "InitProducerId", "init_producer_id", 0, 5),
    Api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4),
    # v2 is of Kafka 4.2.
    Api(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5),
    Api(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4),
    Api(26, "EndTxn", "end_txn", 0, 5),
    Api(27, "WriteTxnMarkers", "write_txn_markers", 1, 2),
    Api(28, "TxnOffsetCommit", "txn_offset_commit", 0, 5),
    Api(32, "DescribeConfigs", "describe_configs", 1, 4),
    Api(33, "AlterConfigs", "alter_configs", 0, 2),
    Api(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2),
    Api(35, "DescribeLogDirs", "describe_log_dirs", 1, 4),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", "sasl_authenticate", 0, 2),
    Api(37, "CreatePartitions", "create_partitions", 0, 3),
    Api(42, "DeleteGroups", "delete_groups", 0, 2),
    Api(43, "ElectLeaders", "elect_leaders", 0, 2),
    Api(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1),
    Api(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1),
    Api(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0),
    Api(47, "OffsetDelete", "offset_delete", 0, 0),
    Api(50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0),
    Api(51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0),
    Api(55, "DescribeQuorum", "describe_quorum", 0, 2),
    Api(57, "UpdateFeatures", "update_features", 0, 2),
    Api(60, "DescribeCluster", "describe_cluster", 0, 2),
    Api(61, "DescribeProducers", "describe_producers", 0, 0),
    Api(64, "UnregisterBroker", "unregister_broker", 0, 0),
    Api(65, "DescribeTransactions", "describe_transactions", 0, 0),
    Api(66, "ListTransactions", "list_transactions", 0, 2),
    Api(74, "ListConfigResources", "list_config_resources", 0, 1),
    Api(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0),
)

APIS: dict[int, Api] = {api.key: api for api in _ROWS}
