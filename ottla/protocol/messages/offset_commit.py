"""OffsetCommit: store the offsets up to which a group has consumed.

By version:
- 2 has a retention time for the whole request, until 4.
- 3 returns the throttle time.
- 5 leaves retention to the broker.
- 6 has leader epochs.
- 7 has static members.
- 8 is flexible.
- 9 can carry the member epoch of the new group protocol (KIP-848).
"""

from ottla.protocol.schema import define

TABLE = """
OffsetCommitRequest  key 8  versions 2-9  flexible 8+
  group_id                       string                          2+
  generation_id_or_member_epoch  int32                           2+   = -1
  member_id                      string                          2+
  group_instance_id              string                          7+   null = null
  retention_time_ms              int64                           2-4  = -1
  topics                         []OffsetCommitRequestTopic      2+
    name                         string                          2+
    partitions                   []OffsetCommitRequestPartition  2+
      partition_index            int32                           2+
      committed_offset           int64                           2+
      committed_leader_epoch     int32                           6+   = -1
      committed_metadata         string                          2+   null

OffsetCommitResponse  key 8  versions 2-9  flexible 8+
  throttle_time_ms     int32                            3+
  topics               []OffsetCommitResponseTopic      2+
    name               string                           2+
    partitions         []OffsetCommitResponsePartition  2+
      partition_index  int32                            2+
      error_code       int16                            2+
"""

(
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetCommitResponsePartition,
) = define(TABLE, __name__)
