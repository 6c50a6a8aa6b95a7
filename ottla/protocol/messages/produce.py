"""Produce: append record batches to partitions.

By version:
- 3 carries record batches of format 2 and a transactional id.
- 4 to 6 differ in errors only, but 5 answers with the log start offset.
- 7 allows zstd (KIP-110).
- 8 answers with the records at fault (KIP-467).
- 9 is flexible.
- 10 can return the new leader and its address (KIP-951).
- 11 knows another error of transactions (KIP-890).
- 12 is as 11 for all that is not transactional (KIP-890).
- 13 has topic ids instead of names (KIP-516).
"""

from ottla.protocol.schema import define

TABLE = """
ProduceRequest  key 0  versions 3-13  flexible 9+
  transactional_id  string                  3+  null = null
  acks              int16                   3+
  timeout_ms        int32                   3+
  topic_data        []TopicProduceData      3+
    name            string                  3-12
    topic_id        uuid                    13+
    partition_data  []PartitionProduceData  3+
      index         int32                   3+
      records       records                 3+  null

ProduceResponse  key 0  versions 3-13  flexible 9+
  responses                        []TopicProduceResponse       3+
    name                           string                       3-12
    topic_id                       uuid                         13+
    partition_responses            []PartitionProduceResponse   3+
      index                        int32                        3+
      error_code                   int16                        3+
      base_offset                  int64                        3+
      log_append_time_ms           int64                        3+   = -1
      log_start_offset             int64                        5+   = -1
      record_errors                []BatchIndexAndErrorMessage  8+
        batch_index                int32                        8+
        batch_index_error_message  string                       8+   null = null
      error_message                string                       8+   null = null
      current_leader               LeaderIdAndEpoch             10+  tag 0
        leader_id                  int32                        10+  = -1
        leader_epoch               int32                        10+  = -1
  throttle_time_ms                 int32                        3+
  node_endpoints                   []NodeEndpoint               10+  tag 0
    node_id                        int32                        10+
    host                           string                       10+
    port                           int32                        10+
    rack                           string                       10+  null = null
"""

(
    ProduceRequest,
    TopicProduceData,
    PartitionProduceData,
    ProduceResponse,
    TopicProduceResponse,
    PartitionProduceResponse,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
) = define(TABLE, __name__)
