"""ListOffsets: the offset of a moment in time, or of the start or end of a partition.

By version:
- 1 answers with one offset and its timestamp.
- 2 has an isolation level.
- 4 has leader epochs.
- 6 is flexible.
- 7 knows the timestamp -3, the record with the largest timestamp (KIP-734).
- 8 and 9 know -4 and -5 of tiered storage (KIP-405, KIP-1005).
- 10 has a timeout.
"""

from ottla.protocol.schema import define

TABLE = """
ListOffsetsRequest  key 2  versions 1-10  flexible 6+
  replica_id                int32                   1+
  isolation_level           int8                    2+
  topics                    []ListOffsetsTopic      1+
    name                    string                  1+
    partitions              []ListOffsetsPartition  1+
      partition_index       int32                   1+
      current_leader_epoch  int32                   4+   = -1
      timestamp             int64                   1+
  timeout_ms                int32                   10+

ListOffsetsResponse  key 2  versions 1-10  flexible 6+
  throttle_time_ms     int32                           2+
  topics               []ListOffsetsTopicResponse      1+
    name               string                          1+
    partitions         []ListOffsetsPartitionResponse  1+
      partition_index  int32                           1+
      error_code       int16                           1+
      timestamp        int64                           1+  = -1
      offset           int64                           1+  = -1
      leader_epoch     int32                           4+  = -1
"""

(
    ListOffsetsRequest,
    ListOffsetsTopic,
    ListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    ListOffsetsPartitionResponse,
) = define(TABLE, __name__)
