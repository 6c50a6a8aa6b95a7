"""Fetch: read record batches from partitions, as a consumer or as a follower.

By version:
- 4 has an isolation level and aborted transactions (KIP-98).
- 5 has log start offsets.
- 7 has sessions, in which only changes are sent (KIP-227).
- 9 fences by leader epoch (KIP-320).
- 10 allows zstd.
- 11 has the rack of the client, and answers with a nearer replica (KIP-392).
- 12 is flexible, and shows a follower where its log diverges (KIP-595).
- 13 has topic ids in place of names (KIP-516).
- 15 moves the replica id into a tagged structure with its epoch (KIP-903).
- 16 can return the new leader's address (KIP-951).
- 17 has the follower's directory id (KIP-853).
- 18 has the high watermark that a follower knows (KIP-1166), which followers of Kafka's controllers send.
"""

from ottla.protocol.schema import define

TABLE = """
FetchRequest  key 1  versions 4-18  flexible 12+
  cluster_id                string            12+   null tag 0 = null
  replica_id                int32             4-14  = -1
  replica_state             ReplicaState      15+   tag 1
    replica_id              int32             15+   = -1
    replica_epoch           int64             15+   = -1
  max_wait_ms               int32             4+
  min_bytes                 int32             4+
  max_bytes                 int32             4+    = 2147483647
  isolation_level           int8              4+
  session_id                int32             7+
  session_epoch             int32             7+    = -1
  topics                    []FetchTopic      4+
    topic                   string            4-12
    topic_id                uuid              13+
    partitions              []FetchPartition  4+
      partition             int32             4+
      current_leader_epoch  int32             9+    = -1
      fetch_offset          int64             4+
      last_fetched_epoch    int32             12+   = -1
      log_start_offset      int64             5+    = -1
      partition_max_bytes   int32             4+
      replica_directory_id  uuid              17+   tag 0
      high_watermark        int64             18+   tag 1 = 9223372036854775807
  forgotten_topics_data     []ForgottenTopic  7+
    topic                   string            7-12
    topic_id                uuid              13+
    partitions              []int32           7+
  rack_id                   string            11+

FetchResponse  key 1  versions 4-18  flexible 12+
  throttle_time_ms            int32                     4+
  error_code                  int16                     7+
  session_id                  int32                     7+
  responses                   []FetchableTopicResponse  4+
    topic                     string                    4-12
    topic_id                  uuid                      13+
    partitions                []PartitionData           4+
      partition_index         int32                     4+
      error_code              int16                     4+
      high_watermark          int64                     4+
      last_stable_offset      int64                     4+    = -1
      log_start_offset        int64                     5+    = -1
      diverging_epoch         EpochEndOffset            12+   tag 0
        epoch                 int32                     12+   = -1
        end_offset            int64                     12+   = -1
      current_leader          LeaderIdAndEpoch          12+   tag 1
        leader_id             int32                     12+   = -1
        leader_epoch          int32                     12+   = -1
      snapshot_id             SnapshotId                12+   tag 2
        end_offset            int64                     4+    = -1
        epoch                 int32                     4+    = -1
      aborted_transactions    []AbortedTransaction      4+    null
        producer_id           int64                     4+
        first_offset          int64                     4+
      preferred_read_replica  int32                     11+   = -1
      records                 records                   4+    null
  node_endpoints              []NodeEndpoint            16+   tag 0
    node_id                   int32                     16+
    host                      string                    16+
    port                      int32                     16+
    rack                      string                    16+   null = null
"""

(
    FetchRequest,
    ReplicaState,
    FetchTopic,
    FetchPartition,
    ForgottenTopic,
    FetchResponse,
    FetchableTopicResponse,
    PartitionData,
    EpochEndOffset,
    LeaderIdAndEpoch,
    SnapshotId,
    AbortedTransaction,
    NodeEndpoint,
) = define(TABLE, __name__)
