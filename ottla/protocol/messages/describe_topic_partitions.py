"""DescribeTopicPartitions: topics page by page, each with its partitions and eligible leaders (KIP-966)."""

from ottla.protocol.schema import define

TABLE = """
DescribeTopicPartitionsRequest  key 75  versions 0-0  flexible 0+
  topics                    []TopicRequest  0+
    name                    string          0+
  response_partition_limit  int32           0+  = 2000
  cursor                    Cursor          0+  null = null
    topic_name              string          0+
    partition_index         int32           0+

DescribeTopicPartitionsResponse  key 75  versions 0-0  flexible 0+
  throttle_time_ms               int32                                       0+
  topics                         []DescribeTopicPartitionsResponseTopic      0+
    error_code                   int16                                       0+
    name                         string                                      0+  null
    topic_id                     uuid                                        0+
    is_internal                  bool                                        0+
    partitions                   []DescribeTopicPartitionsResponsePartition  0+
      error_code                 int16                                       0+
      partition_index            int32                                       0+
      leader_id                  int32                                       0+
      leader_epoch               int32                                       0+  = -1
      replica_nodes              []int32                                     0+
      isr_nodes                  []int32                                     0+
      eligible_leader_replicas   []int32                                     0+  null = null
      last_known_elr             []int32                                     0+  null = null
      offline_replicas           []int32                                     0+
    topic_authorized_operations  int32                                       0+  = -2147483648
  next_cursor                    Cursor                                      0+  null = null
"""

(
    DescribeTopicPartitionsRequest,
    TopicRequest,
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    DescribeTopicPartitionsResponsePartition,
) = define(TABLE, __name__)
