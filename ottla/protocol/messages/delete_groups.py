"""DeleteGroups: delete groups that have no members.

By version:
- 2 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
DeleteGroupsRequest  key 42  versions 0-2  flexible 2+
  groups_names  []string  0+

DeleteGroupsResponse  key 42  versions 0-2  flexible 2+
  throttle_time_ms  int32                   0+
  results           []DeletableGroupResult  0+
    group_id        string                  0+
    error_code      int16                   0+
"""

DeleteGroupsRequest, DeleteGroupsResponse, DeletableGroupResult = define(TABLE, __name__)
