"""OffsetFetch: what a group has committed.

By version:
- 2 asks for all partitions by a null list, and can answer with one error for the group.
- 3 returns the throttle time.
- 5 has leader epochs.
- 6 is flexible.
- 7 can ask for offsets that no open transaction will change (KIP-447).
- 8 asks for several groups at once (KIP-709).
- 9 has member id and epoch of the new group protocol (KIP-848).
"""

from ottla.protocol.schema import define

TABLE = """
OffsetFetchRequest  key 9  versions 1-9  flexible 6+
  group_id               string                      1-7
  topics                 []OffsetFetchRequestTopic   1-7  null 2-7
    name                 string                      1-7
    partition_indexes    []int32                     1-7
  groups                 []OffsetFetchRequestGroup   8+
    group_id             string                      8+
    member_id            string                      9+   null = null
    member_epoch         int32                       9+   = -1
    topics               []OffsetFetchRequestTopics  8+   null
      name               string                      8+
      partition_indexes  []int32                     8+
  require_stable         bool                        7+

OffsetFetchResponse  key 9  versions 1-9  flexible 6+
  throttle_time_ms              int32                            3+
  topics                        []OffsetFetchResponseTopic       1-7
    name                        string                           1-7
    partitions                  []OffsetFetchResponsePartition   1-7
      partition_index           int32                            1-7
      committed_offset          int64                            1-7
      committed_leader_epoch    int32                            5-7  = -1
      metadata                  string                           1-7  null
      error_code                int16                            1-7
  error_code                    int16                            2-7
  groups                        []OffsetFetchResponseGroup       8+
    group_id                    string                           8+
    topics                      []OffsetFetchResponseTopics      8+
      name                      string                           8+
      partitions                []OffsetFetchResponsePartitions  8+
        partition_index         int32                            8+
        committed_offset        int64                            8+
        committed_leader_epoch  int32                            8+   = -1
        metadata                string                           8+   null
        error_code              int16                            8+
    error_code                  int16                            8+
"""

(
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
    OffsetFetchResponsePartitions,
) = define(TABLE, __name__)
