"""ListPartitionReassignments: which partitions are being moved, from where and to where (KIP-455)."""

from ottla.protocol.schema import define

TABLE = """
ListPartitionReassignmentsRequest  key 46  versions 0-0  flexible 0+
  timeout_ms           int32                               0+  = 60000
  topics               []ListPartitionReassignmentsTopics  0+  null = null
    name               string                              0+
    partition_indexes  []int32                             0+

ListPartitionReassignmentsResponse  key 46  versions 0-0  flexible 0+
  throttle_time_ms       int32                           0+
  error_code             int16                           0+
  error_message          string                          0+  null = null
  topics                 []OngoingTopicReassignment      0+
    name                 string                          0+
    partitions           []OngoingPartitionReassignment  0+
      partition_index    int32                           0+
      replicas           []int32                         0+
      adding_replicas    []int32                         0+
      removing_replicas  []int32                         0+
"""

(
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ListPartitionReassignmentsResponse,
    OngoingTopicReassignment,
    OngoingPartitionReassignment,
) = define(TABLE, __name__)
