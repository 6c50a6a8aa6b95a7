"""DescribeTransactions: the state of transactional ids (KIP-664)."""

from ottla.protocol.schema import define

TABLE = """
DescribeTransactionsRequest  key 65  versions 0-0  flexible 0+
  transactional_ids  []string  0+

DescribeTransactionsResponse  key 65  versions 0-0  flexible 0+
  throttle_time_ms             int32                   0+
  transaction_states           []DescribedTransaction  0+
    error_code                 int16                   0+
    transactional_id           string                  0+
    transaction_state          string                  0+
    transaction_timeout_ms     int32                   0+
    transaction_start_time_ms  int64                   0+
    producer_id                int64                   0+
    producer_epoch             int16                   0+
    topics                     []TransactionTopic      0+
      topic                    string                  0+
      partitions               []int32                 0+
"""

(
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribedTransaction,
    TransactionTopic,
) = define(TABLE, __name__)
