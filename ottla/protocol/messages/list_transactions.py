"""ListTransactions: the transactional ids that a broker coordinates (KIP-664).

By version:
- 1 can ask for transactions that have been open for longer than a duration (KIP-994).
- 2 can ask for ids that match a regular expression (KIP-1152).
"""

from ottla.protocol.schema import define

TABLE = """
ListTransactionsRequest  key 66  versions 0-2  flexible 0+
  state_filters             []string  0+
  producer_id_filters       []int64   0+
  duration_filter           int64     1+  = -1
  transactional_id_pattern  string    2+  null = null

ListTransactionsResponse  key 66  versions 0-2  flexible 0+
  throttle_time_ms       int32                0+
  error_code             int16                0+
  unknown_state_filters  []string             0+
  transaction_states     []ListedTransaction  0+
    transactional_id     string               0+
    producer_id          int64                0+
    transaction_state    string               0+
"""

ListTransactionsRequest, ListTransactionsResponse, ListedTransaction = define(TABLE, __name__)
