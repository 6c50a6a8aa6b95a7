"""DescribeQuorum: who leads the cluster's metadata, and how far the others are (KIP-595).

By version:
- 1 returns when each replica last fetched and last had everything (KIP-836).
- 2 returns messages with errors, the directories of the replicas and the addresses of the voters (KIP-853).
"""

from ottla.protocol.schema import define

TABLE = """
DescribeQuorumRequest  key 55  versions 0-2  flexible 0+
  topics             []QuorumTopic      0+
    topic_name       string             0+
    partitions       []QuorumPartition  0+
      partition_index  int32            0+

DescribeQuorumResponse  key 55  versions 0-2  flexible 0+
  error_code                      int16                   0+
  error_message                   string                  2+  null = null
  topics                          []QuorumTopicData       0+
    topic_name                    string                  0+
    partitions                    []QuorumPartitionData   0+
      partition_index             int32                   0+
      error_code                  int16                   0+
      error_message               string                  2+  null = null
      leader_id                   int32                   0+
      leader_epoch                int32                   0+
      high_watermark              int64                   0+
      current_voters              []QuorumReplicaState    0+
        replica_id                int32                   0+
        replica_directory_id      uuid                    2+
        log_end_offset            int64                   0+
        last_fetch_timestamp      int64                   1+  = -1
        last_caught_up_timestamp  int64                   1+  = -1
      observers                   []QuorumReplicaState    0+
  nodes                           []QuorumNode            2+
    node_id                       int32                   2+
    listeners                     []QuorumNodeListener    2+
      name                        string                  2+
      host                        string                  2+
      port                        uint16                  2+
"""

(
    DescribeQuorumRequest,
    QuorumTopic,
    QuorumPartition,
    DescribeQuorumResponse,
    QuorumTopicData,
    QuorumPartitionData,
    QuorumReplicaState,
    QuorumNode,
    QuorumNodeListener,
) = define(TABLE, __name__)
