"""What consumers send one another through JoinGroup and SyncGroup: subscriptions and assignments.

Both travel as bytes behind an int16 of their version. A broker passes them on; it looks into subscriptions only to know
which topics a group reads.

Subscription, by version:
- 1 adds the partitions a member owns, for cooperative rebalancing (KIP-429).
- 2 adds the generation in which it owned them (KIP-792).
- 3 adds the member's rack (KIP-881).

The assignment's layout is the same in all versions.
"""

from ottla.protocol.schema import define

TABLE = """
ConsumerProtocolSubscription  key none  versions 0-3  flexible none
  topics            []string          0+
  user_data         bytes             0+  null = null
  owned_partitions  []TopicPartition  1+
    topic           string            0+
    partitions      []int32           0+
  generation_id     int32             2+  = -1
  rack_id           string            3+  null = null

ConsumerProtocolAssignment  key none  versions 0-3  flexible none
  assigned_partitions  []TopicPartition  0+
  user_data            bytes             0+  null = null
"""

ConsumerProtocolSubscription, TopicPartition, ConsumerProtocolAssignment = define(TABLE, __name__)
