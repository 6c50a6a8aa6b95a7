"""TxnOffsetCommit: store the offsets up to which a group has consumed, as a part of a producer's transaction.

By version:
- 2 has leader epochs.
- 3 is flexible, and names the member of the group, which then fences it (KIP-447).
- 4 knows TRANSACTION_ABORTABLE (KIP-890).
- 5 makes the partition of the offsets a part of the transaction; before, AddOffsetsToTxn has done that (KIP-890).
"""

from ottla.protocol.schema import define

TABLE = """
TxnOffsetCommitRequest  key 28  versions 0-5  flexible 3+
  transactional_id            string                             0+
  group_id                    string                             0+
  producer_id                 int64                              0+
  producer_epoch              int16                              0+
  generation_id               int32                              3+   = -1
  member_id                   string                             3+
  group_instance_id           string                             3+   null = null
  topics                      []TxnOffsetCommitRequestTopic      0+
    name                      string                             0+
    partitions                []TxnOffsetCommitRequestPartition  0+
      partition_index         int32                              0+
      committed_offset        int64                              0+
      committed_leader_epoch  int32                              2+   = -1
      committed_metadata      string                             0+   null

TxnOffsetCommitResponse  key 28  versions 0-5  flexible 3+
  throttle_time_ms     int32                               0+
  topics               []TxnOffsetCommitResponseTopic      0+
    name               string                              0+
    partitions         []TxnOffsetCommitResponsePartition  0+
      partition_index  int32                               0+
      error_code       int16                               0+
"""

(
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
    TxnOffsetCommitResponsePartition,
) = define(TABLE, __name__)
