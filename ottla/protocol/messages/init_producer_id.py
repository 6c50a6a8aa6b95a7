"""InitProducerId: a producer id and epoch for an idempotent or transactional producer.

By version:
- 2 is flexible.
- 3 asks for a new epoch of a known producer id (KIP-360).
- 4 and 5 know other errors.
"""

from ottla.protocol.schema import define

TABLE = """
InitProducerIdRequest  key 22  versions 0-5  flexible 2+
  transactional_id        string  0+  null
  transaction_timeout_ms  int32   0+
  producer_id             int64   3+  = -1
  producer_epoch          int16   3+  = -1

InitProducerIdResponse  key 22  versions 0-5  flexible 2+
  throttle_time_ms  int32  0+
  error_code        int16  0+
  producer_id       int64  0+  = -1
  producer_epoch    int16  0+
"""

InitProducerIdRequest, InitProducerIdResponse = define(TABLE, __name__)
