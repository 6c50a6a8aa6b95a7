"""DeleteRecords: delete all records below an offset.

By version:
- 2 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
DeleteRecordsRequest  key 21  versions 0-2  flexible 2+
  topics               []DeleteRecordsTopic      0+
    name               string                    0+
    partitions         []DeleteRecordsPartition  0+
      partition_index  int32                     0+
      offset           int64                     0+
  timeout_ms           int32                     0+

DeleteRecordsResponse  key 21  versions 0-2  flexible 2+
  throttle_time_ms     int32                           0+
  topics               []DeleteRecordsTopicResult      0+
    name               string                          0+
    partitions         []DeleteRecordsPartitionResult  0+
      partition_index  int32                           0+
      low_watermark    int64                           0+
      error_code       int16                           0+
"""

(
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteRecordsPartition,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteRecordsPartitionResult,
) = define(TABLE, __name__)
