"""LeaveGroup: members leave a group.

By version:
- 1 returns the throttle time.
- 3 removes several members, static ones by their instance id.
- 4 is flexible.
- 5 has the reason for leaving (KIP-800).
"""

from ottla.protocol.schema import define

TABLE = """
LeaveGroupRequest  key 13  versions 0-5  flexible 4+
  group_id             string            0+
  member_id            string            0-2
  members              []MemberIdentity  3+
    member_id          string            3+
    group_instance_id  string            3+   null = null
    reason             string            5+   null = null

LeaveGroupResponse  key 13  versions 0-5  flexible 4+
  throttle_time_ms     int32             1+
  error_code           int16             0+
  members              []MemberResponse  3+
    member_id          string            3+
    group_instance_id  string            3+  null
    error_code         int16             3+
"""

LeaveGroupRequest, MemberIdentity, LeaveGroupResponse, MemberResponse = define(TABLE, __name__)
