"""AlterConfigs: replace all settings of a broker or topic.

By version:
- 2 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
AlterConfigsRequest  key 33  versions 0-2  flexible 2+
  resources        []AlterConfigsResource  0+
    resource_type  int8                    0+
    resource_name  string                  0+
    configs        []AlterableConfig       0+
      name         string                  0+
      value        string                  0+  null
  validate_only    bool                    0+

AlterConfigsResponse  key 33  versions 0-2  flexible 2+
  throttle_time_ms  int32                           0+
  responses         []AlterConfigsResourceResponse  0+
    error_code      int16                           0+
    error_message   string                          0+  null
    resource_type   int8                            0+
    resource_name   string                          0+
"""

(
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterableConfig,
    AlterConfigsResponse,
    AlterConfigsResourceResponse,
) = define(TABLE, __name__)
