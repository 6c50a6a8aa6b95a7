"""DescribeProducers: the producers whose state a partition keeps (KIP-664)."""

from ottla.protocol.schema import define

TABLE = """
DescribeProducersRequest  key 61  versions 0-0  flexible 0+
  topics               []TopicRequest  0+
    name               string          0+
    partition_indexes  []int32         0+

DescribeProducersResponse  key 61  versions 0-0  flexible 0+
  throttle_time_ms                int32                0+
  topics                          []TopicResponse      0+
    name                          string               0+
    partitions                    []PartitionResponse  0+
      partition_index             int32                0+
      error_code                  int16                0+
      error_message               string               0+  null = null
      active_producers            []ProducerState      0+
        producer_id               int64                0+
        producer_epoch            int32                0+
        last_sequence             int32                0+  = -1
        last_timestamp            int64                0+  = -1
        coordinator_epoch         int32                0+
        current_txn_start_offset  int64                0+  = -1
"""

(
    DescribeProducersRequest,
    TopicRequest,
    DescribeProducersResponse,
    TopicResponse,
    PartitionResponse,
    ProducerState,
) = define(TABLE, __name__)
