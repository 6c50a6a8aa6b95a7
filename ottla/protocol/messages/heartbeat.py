"""Heartbeat: a member shows that it lives and hears of rebalances.

By version:
- 1 returns the throttle time.
- 3 has static members.
- 4 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
HeartbeatRequest  key 12  versions 0-4  flexible 4+
  group_id           string  0+
  generation_id      int32   0+
  member_id          string  0+
  group_instance_id  string  3+  null = null

HeartbeatResponse  key 12  versions 0-4  flexible 4+
  throttle_time_ms  int32  1+
  error_code        int16  0+
"""

HeartbeatRequest, HeartbeatResponse = define(TABLE, __name__)
