"""AlterReplicaLogDirs: move replicas to another directory of their broker (KIP-113).

By version:
- 2 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
AlterReplicaLogDirsRequest  key 34  versions 1-2  flexible 2+
  dirs            []AlterReplicaLogDir       1+
    path          string                     1+
    topics        []AlterReplicaLogDirTopic  1+
      name        string                     1+
      partitions  []int32                    1+

AlterReplicaLogDirsResponse  key 34  versions 1-2  flexible 2+
  throttle_time_ms     int32                                   1+
  results              []AlterReplicaLogDirTopicResult         1+
    topic_name         string                                  1+
    partitions         []AlterReplicaLogDirPartitionResult     1+
      partition_index  int32                                   1+
      error_code       int16                                   1+
"""

(
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    AlterReplicaLogDirPartitionResult,
) = define(TABLE, __name__)
