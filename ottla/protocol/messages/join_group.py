"""JoinGroup: become a member of a group, or stay one through a rebalance.

By version:
- 1 has a rebalance timeout apart from the session's.
- 2 returns the throttle time.
- 4 has the member ask again with the id it is given (KIP-394).
- 5 has static members (KIP-345).
- 6 is flexible.
- 7 answers with the protocol type; the protocol may be null.
- 8 has the reason for joining (KIP-800).
- 9 lets a leader skip the assignment.
"""

from ottla.protocol.schema import define

TABLE = """
JoinGroupRequest  key 11  versions 0-9  flexible 6+
  group_id              string                      0+
  session_timeout_ms    int32                       0+
  rebalance_timeout_ms  int32                       1+  = -1
  member_id             string                      0+
  group_instance_id     string                      5+  null = null
  protocol_type         string                      0+
  protocols             []JoinGroupRequestProtocol  0+
    name                string                      0+
    metadata            bytes                       0+
  reason                string                      8+  null = null

JoinGroupResponse  key 11  versions 0-9  flexible 6+
  throttle_time_ms     int32                      2+
  error_code           int16                      0+
  generation_id        int32                      0+  = -1
  protocol_type        string                     7+  null = null
  protocol_name        string                     0+  null 7+
  leader               string                     0+
  skip_assignment      bool                       9+
  member_id            string                     0+
  members              []JoinGroupResponseMember  0+
    member_id          string                     0+
    group_instance_id  string                     5+  null = null
    metadata           bytes                      0+
"""

JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember = define(TABLE, __name__)
