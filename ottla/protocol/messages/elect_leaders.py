"""ElectLeaders: let the preferred replica lead, or any that is alive (KIP-183, KIP-460).

By version:
- 1 has the type of the election, which was the preferred one before, and an error of the whole.
- 2 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
ElectLeadersRequest  key 43  versions 0-2  flexible 2+
  election_type     int8               1+
  topic_partitions  []TopicPartitions  0+  null
    topic           string             0+
    partitions      []int32            0+
  timeout_ms        int32              0+  = 60000

ElectLeadersResponse  key 43  versions 0-2  flexible 2+
  throttle_time_ms          int32                    0+
  error_code                int16                    1+
  replica_election_results  []ReplicaElectionResult  0+
    topic                   string                   0+
    partition_result        []PartitionResult        0+
      partition_id          int32                    0+
      error_code            int16                    0+
      error_message         string                   0+  null = null
"""

(
    ElectLeadersRequest,
    TopicPartitions,
    ElectLeadersResponse,
    ReplicaElectionResult,
    PartitionResult,
) = define(TABLE, __name__)
