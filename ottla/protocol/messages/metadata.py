"""Metadata: brokers, topics, partitions and their leaders.

By version:
- 1 returns the controller, racks and internal topics; a null list of topics asks for all, as an empty one did before.
- 2 returns the cluster id.
- 3 returns the throttle time.
- 4 lets the client forbid the creation of topics it asks for.
- 5 returns offline replicas.
- 7 returns leader epochs.
- 8 can return authorized operations.
- 9 is flexible.
- 10 has topic ids (KIP-516).
- 11 drops the cluster's authorized operations, which DescribeCluster returns.
- 12 can ask by topic id: names may be null.
- 13 can answer with an error for the whole request.
"""

from ottla.protocol.schema import define

TABLE = """
MetadataRequest  key 3  versions 0-13  flexible 9+
  topics                                 []MetadataRequestTopic  0+    null 1+
    topic_id                             uuid                    10+
    name                                 string                  0+    null 10+
  allow_auto_topic_creation              bool                    4+    = true
  include_cluster_authorized_operations  bool                    8-10
  include_topic_authorized_operations    bool                    8+

MetadataResponse  key 3  versions 0-13  flexible 9+
  throttle_time_ms               int32                        3+
  brokers                        []MetadataResponseBroker     0+
    node_id                      int32                        0+
    host                         string                       0+
    port                         int32                        0+
    rack                         string                       1+    null = null
  cluster_id                     string                       2+    null = null
  controller_id                  int32                        1+    = -1
  topics                         []MetadataResponseTopic      0+
    error_code                   int16                        0+
    name                         string                       0+    null 12+
    topic_id                     uuid                         10+
    is_internal                  bool                         1+
    partitions                   []MetadataResponsePartition  0+
      error_code                 int16                        0+
      partition_index            int32                        0+
      leader_id                  int32                        0+
      leader_epoch               int32                        7+    = -1
      replica_nodes              []int32                      0+
      isr_nodes                  []int32                      0+
      offline_replicas           []int32                      5+
    topic_authorized_operations  int32                        8+    = -2147483648
  cluster_authorized_operations  int32                        8-10  = -2147483648
  error_code                     int16                        13+
"""

(
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
    MetadataResponsePartition,
) = define(TABLE, __name__)
