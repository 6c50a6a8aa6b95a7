"""DescribeLogDirs: sizes of partitions by log directory.

By version:
- 2 is flexible.
- 3 can answer with an error for the whole request.
- 4 returns the size of the volume and how much of it is free (KIP-827).
"""

from ottla.protocol.schema import define

TABLE = """
DescribeLogDirsRequest  key 35  versions 1-4  flexible 2+
  topics        []DescribableLogDirTopic  1+  null
    topic       string                    1+
    partitions  []int32                   1+

DescribeLogDirsResponse  key 35  versions 1-4  flexible 2+
  throttle_time_ms       int32                       1+
  error_code             int16                       3+
  results                []DescribeLogDirsResult     1+
    error_code           int16                       1+
    log_dir              string                      1+
    topics               []DescribeLogDirsTopic      1+
      name               string                      1+
      partitions         []DescribeLogDirsPartition  1+
        partition_index  int32                       1+
        partition_size   int64                       1+
        offset_lag       int64                       1+
        is_future_key    bool                        1+
    total_bytes          int64                       4+  = -1
    usable_bytes         int64                       4+  = -1
"""

(
    DescribeLogDirsRequest,
    DescribableLogDirTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DescribeLogDirsPartition,
) = define(TABLE, __name__)
