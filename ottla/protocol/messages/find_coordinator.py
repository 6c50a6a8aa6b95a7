"""FindCoordinator: the broker that coordinates a group or a transactional id.

By version:
- 1 has the kind of key, and returns errors in words.
- 3 is flexible.
- 4 asks for several keys at once (KIP-699).
- 5 and 6 allow other errors and kinds of key.
"""

from ottla.protocol.schema import define

TABLE = """
FindCoordinatorRequest  key 10  versions 0-6  flexible 3+
  key               string    0-3
  key_type          int8      1+
  coordinator_keys  []string  4+

FindCoordinatorResponse  key 10  versions 0-6  flexible 3+
  throttle_time_ms  int32          1+
  error_code        int16          0-3
  error_message     string         1-3  null
  node_id           int32          0-3
  host              string         0-3
  port              int32          0-3
  coordinators      []Coordinator  4+
    key             string         4+
    node_id         int32          4+
    host            string         4+
    port            int32          4+
    error_code      int16          4+
    error_message   string         4+   null
"""

FindCoordinatorRequest, FindCoordinatorResponse, Coordinator = define(TABLE, __name__)
