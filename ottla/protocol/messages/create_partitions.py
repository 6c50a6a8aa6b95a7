"""CreatePartitions: add partitions to topics.

By version:
- 2 is flexible.
- 3 knows another error, of quotas (KIP-599).
"""

from ottla.protocol.schema import define

TABLE = """
CreatePartitionsRequest  key 37  versions 0-3  flexible 2+
  topics          []CreatePartitionsTopic       0+
    name          string                        0+
    count         int32                         0+
    assignments   []CreatePartitionsAssignment  0+  null
      broker_ids  []int32                       0+
  timeout_ms      int32                         0+
  validate_only   bool                          0+

CreatePartitionsResponse  key 37  versions 0-3  flexible 2+
  throttle_time_ms  int32                          0+
  results           []CreatePartitionsTopicResult  0+
    name            string                         0+
    error_code      int16                          0+
    error_message   string                         0+  null = null
"""

(
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsAssignment,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
) = define(TABLE, __name__)
