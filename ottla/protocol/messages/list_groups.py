"""ListGroups: the groups that a broker coordinates.

By version:
- 1 returns the throttle time.
- 3 is flexible.
- 4 returns states and can ask for some of them (KIP-518).
- 5 does the same with types (KIP-848).
"""

from ottla.protocol.schema import define

TABLE = """
ListGroupsRequest  key 16  versions 0-5  flexible 3+
  states_filter  []string  4+
  types_filter   []string  5+

ListGroupsResponse  key 16  versions 0-5  flexible 3+
  throttle_time_ms  int32          1+
  error_code        int16          0+
  groups            []ListedGroup  0+
    group_id        string         0+
    protocol_type   string         0+
    group_state     string         4+
    group_type      string         5+
"""

ListGroupsRequest, ListGroupsResponse, ListedGroup = define(TABLE, __name__)
