"""ListConfigResources: the names of what can have configs (KIP-1142).

By version:
- 0 lists subscriptions to clients' metrics only (KIP-714).
- 1 lists what is asked for, of all types.
"""

from ottla.protocol.schema import define

TABLE = """
ListConfigResourcesRequest  key 74  versions 0-1  flexible 0+
  resource_types  []int8  1+

ListConfigResourcesResponse  key 74  versions 0-1  flexible 0+
  throttle_time_ms  int32             0+
  error_code        int16             0+
  config_resources  []ConfigResource  0+
    resource_name   string            0+
    resource_type   int8              1+  = 16
"""

ListConfigResourcesRequest, ListConfigResourcesResponse, ConfigResource = define(TABLE, __name__)
