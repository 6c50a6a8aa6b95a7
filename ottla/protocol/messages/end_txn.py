"""EndTxn: commit or abort a transaction.

By version:
- 2 knows PRODUCER_FENCED.
- 3 is flexible.
- 4 knows TRANSACTION_ABORTABLE (KIP-890).
- 5 raises the producer's epoch, and returns the id and epoch of its next transaction.
"""

from ottla.protocol.schema import define

TABLE = """
EndTxnRequest  key 26  versions 0-5  flexible 3+
  transactional_id  string  0+
  producer_id       int64   0+
  producer_epoch    int16   0+
  committed         bool    0+

EndTxnResponse  key 26  versions 0-5  flexible 3+
  throttle_time_ms  int32  0+
  error_code        int16  0+
  producer_id       int64  5+  = -1
  producer_epoch    int16  5+  = -1
"""

EndTxnRequest, EndTxnResponse = define(TABLE, __name__)
