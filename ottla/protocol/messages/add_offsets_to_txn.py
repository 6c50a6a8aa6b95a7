"""AddOffsetsToTxn: a transaction is going to commit offsets of a group.

By version:
- 2 knows PRODUCER_FENCED.
- 3 is flexible.
- 4 knows TRANSACTION_ABORTABLE (KIP-890).
"""

from ottla.protocol.schema import define

TABLE = """
AddOffsetsToTxnRequest  key 25  versions 0-4  flexible 3+
  transactional_id  string  0+
  producer_id       int64   0+
  producer_epoch    int16   0+
  group_id          string  0+

AddOffsetsToTxnResponse  key 25  versions 0-4  flexible 3+
  throttle_time_ms  int32  0+
  error_code        int16  0+
"""

AddOffsetsToTxnRequest, AddOffsetsToTxnResponse = define(TABLE, __name__)
