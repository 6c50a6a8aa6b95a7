"""OffsetForLeaderEpoch: where the log of a leader epoch ends.

By version:
- 2 fences by the current leader epoch (KIP-320).
- 3 has the replica id.
- 4 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
OffsetForLeaderEpochRequest  key 23  versions 2-4  flexible 4+
  replica_id                int32                       3+  = -2
  topics                    []OffsetForLeaderTopic      2+
    topic                   string                      2+
    partitions              []OffsetForLeaderPartition  2+
      partition             int32                       2+
      current_leader_epoch  int32                       2+  = -1
      leader_epoch          int32                       2+

OffsetForLeaderEpochResponse  key 23  versions 2-4  flexible 4+
  throttle_time_ms  int32                         2+
  topics            []OffsetForLeaderTopicResult  2+
    topic           string                        2+
    partitions      []EpochEndOffset              2+
      error_code    int16                         2+
      partition     int32                         2+
      leader_epoch  int32                         2+  = -1
      end_offset    int64                         2+  = -1
"""

(
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
    OffsetForLeaderPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
    EpochEndOffset,
) = define(TABLE, __name__)
