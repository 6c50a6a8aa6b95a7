"""AlterPartitionReassignments: begin to move partitions to other replicas, or give a move up (KIP-455).

By version:
- 1 can forbid that the number of replicas changes (KIP-860).
"""

from ottla.protocol.schema import define

TABLE = """
AlterPartitionReassignmentsRequest  key 45  versions 0-1  flexible 0+
  timeout_ms                       int32                    0+  = 60000
  allow_replication_factor_change  bool                     1+  = true
  topics                           []ReassignableTopic      0+
    name                           string                   0+
    partitions                     []ReassignablePartition  0+
      partition_index              int32                    0+
      replicas                     []int32                  0+  null = null

AlterPartitionReassignmentsResponse  key 45  versions 0-1  flexible 0+
  throttle_time_ms                 int32                            0+
  allow_replication_factor_change  bool                             1+  = true
  error_code                       int16                            0+
  error_message                    string                           0+  null = null
  responses                        []ReassignableTopicResponse      0+
    name                           string                           0+
    partitions                     []ReassignablePartitionResponse  0+
      partition_index              int32                            0+
      error_code                   int16                            0+
      error_message                string                           0+  null = null
"""

(
    AlterPartitionReassignmentsRequest,
    ReassignableTopic,
    ReassignablePartition,
    AlterPartitionReassignmentsResponse,
    ReassignableTopicResponse,
    ReassignablePartitionResponse,
) = define(TABLE, __name__)
