"""DescribeGroups: state, members and assignments of groups.

By version:
- 1 returns the throttle time.
- 3 can return authorized operations.
- 4 has static members.
- 5 is flexible.
- 6 answers for an unknown group with an error and a sentence (KIP-1043).
"""

from ottla.protocol.schema import define

TABLE = """
DescribeGroupsRequest  key 15  versions 0-6  flexible 5+
  groups                         []string  0+
  include_authorized_operations  bool      3+

DescribeGroupsResponse  key 15  versions 0-6  flexible 5+
  throttle_time_ms         int32                   1+
  groups                   []DescribedGroup        0+
    error_code             int16                   0+
    error_message          string                  6+  null = null
    group_id               string                  0+
    group_state            string                  0+
    protocol_type          string                  0+
    protocol_data          string                  0+
    members                []DescribedGroupMember  0+
      member_id            string                  0+
      group_instance_id    string                  4+  null = null
      client_id            string                  0+
      client_host          string                  0+
      member_metadata      bytes                   0+
      member_assignment    bytes                   0+
    authorized_operations  int32                   3+  = -2147483648
"""

DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember = define(TABLE, __name__)
