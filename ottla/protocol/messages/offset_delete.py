"""OffsetDelete: forget committed offsets of a group (KIP-496)."""

from ottla.protocol.schema import define

TABLE = """
OffsetDeleteRequest  key 47  versions 0-0  flexible none
  group_id             string                          0+
  topics               []OffsetDeleteRequestTopic      0+
    name               string                          0+
    partitions         []OffsetDeleteRequestPartition  0+
      partition_index  int32                           0+

OffsetDeleteResponse  key 47  versions 0-0  flexible none
  error_code           int16                            0+
  throttle_time_ms     int32                            0+
  topics               []OffsetDeleteResponseTopic      0+
    name               string                           0+
    partitions         []OffsetDeleteResponsePartition  0+
      partition_index  int32                            0+
      error_code       int16                            0+
"""

(
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteRequestPartition,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
    OffsetDeleteResponsePartition,
) = define(TABLE, __name__)
