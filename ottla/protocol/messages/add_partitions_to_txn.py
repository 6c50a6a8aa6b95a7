"""AddPartitionsToTxn: partitions that a transaction is going to write to.

By version:
- 2 knows PRODUCER_FENCED.
- 3 is flexible. Versions up to 3 are of clients, the others of brokers (KIP-890).
- 4 has several transactions, and can ask whether partitions belong to one without adding them.
- 5 knows TRANSACTION_ABORTABLE.
"""

from ottla.protocol.schema import define

TABLE = """
AddPartitionsToTxnRequest  key 24  versions 0-5  flexible 3+
  transactions                   []AddPartitionsToTxnTransaction  4+
    transactional_id             string                           4+
    producer_id                  int64                            4+
    producer_epoch               int16                            4+
    verify_only                  bool                             4+
    topics                       []AddPartitionsToTxnTopic        4+
      name                       string                           0+
      partitions                 []int32                          0+
  v3_and_below_transactional_id  string                           0-3
  v3_and_below_producer_id       int64                            0-3
  v3_and_below_producer_epoch    int16                            0-3
  v3_and_below_topics            []AddPartitionsToTxnTopic        0-3

AddPartitionsToTxnResponse  key 24  versions 0-5  flexible 3+
  throttle_time_ms               int32                                0+
  error_code                     int16                                4+
  results_by_transaction         []AddPartitionsToTxnResult           4+
    transactional_id             string                               4+
    topic_results                []AddPartitionsToTxnTopicResult      4+
      name                       string                               0+
      results_by_partition       []AddPartitionsToTxnPartitionResult  0+
        partition_index          int32                                0+
        partition_error_code     int16                                0+
  results_by_topic_v3_and_below  []AddPartitionsToTxnTopicResult      0-3
"""

(
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnPartitionResult,
) = define(TABLE, __name__)
