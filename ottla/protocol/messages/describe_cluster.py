"""DescribeCluster: the cluster's id, brokers and controller (KIP-700).

By version:
- 1 can ask for controllers in place of brokers (KIP-919).
- 2 can include fenced brokers (KIP-1073).
"""

from ottla.protocol.schema import define

TABLE = """
DescribeClusterRequest  key 60  versions 0-2  flexible 0+
  include_cluster_authorized_operations  bool  0+
  endpoint_type                          int8  1+  = 1
  include_fenced_brokers                 bool  2+

DescribeClusterResponse  key 60  versions 0-2  flexible 0+
  throttle_time_ms               int32                    0+
  error_code                     int16                    0+
  error_message                  string                   0+  null = null
  endpoint_type                  int8                     1+  = 1
  cluster_id                     string                   0+
  controller_id                  int32                    0+  = -1
  brokers                        []DescribeClusterBroker  0+
    broker_id                    int32                    0+
    host                         string                   0+
    port                         int32                    0+
    rack                         string                   0+  null = null
    is_fenced                    bool                     2+
  cluster_authorized_operations  int32                    0+  = -2147483648
"""

DescribeClusterRequest, DescribeClusterResponse, DescribeClusterBroker = define(TABLE, __name__)
