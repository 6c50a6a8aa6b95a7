"""IncrementalAlterConfigs: change single settings of a broker or topic (KIP-339).

By version:
- 1 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
IncrementalAlterConfigsRequest  key 44  versions 0-1  flexible 1+
  resources             []AlterConfigsResource  0+
    resource_type       int8                    0+
    resource_name       string                  0+
    configs             []AlterableConfig       0+
      name              string                  0+
      config_operation  int8                    0+
      value             string                  0+  null
  validate_only         bool                    0+

IncrementalAlterConfigsResponse  key 44  versions 0-1  flexible 1+
  throttle_time_ms  int32                           0+
  responses         []AlterConfigsResourceResponse  0+
    error_code      int16                           0+
    error_message   string                          0+  null
    resource_type   int8                            0+
    resource_name   string                          0+
"""

(
    IncrementalAlterConfigsRequest,
    AlterConfigsResource,
    AlterableConfig,
    IncrementalAlterConfigsResponse,
    AlterConfigsResourceResponse,
) = define(TABLE, __name__)
