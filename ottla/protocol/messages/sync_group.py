"""SyncGroup: the leader hands in the assignment, and each member gets its part.

By version:
- 1 returns the throttle time.
- 3 has static members.
- 4 is flexible.
- 5 repeats protocol type and name, which are checked (KIP-559).
"""

from ottla.protocol.schema import define

TABLE = """
SyncGroupRequest  key 14  versions 0-5  flexible 4+
  group_id           string                        0+
  generation_id      int32                         0+
  member_id          string                        0+
  group_instance_id  string                        3+  null = null
  protocol_type      string                        5+  null = null
  protocol_name      string                        5+  null = null
  assignments        []SyncGroupRequestAssignment  0+
    member_id        string                        0+
    assignment       bytes                         0+  view

SyncGroupResponse  key 14  versions 0-5  flexible 4+
  throttle_time_ms  int32   1+
  error_code        int16   0+
  protocol_type     string  5+  null = null
  protocol_name     string  5+  null = null
  assignment        bytes   0+
"""

SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse = define(TABLE, __name__)
