"""DescribeConfigs: the settings of brokers and topics, and where their values come from.

By version:
- 1 returns the source of a value and its synonyms.
- 3 can return types and documentation (KIP-569).
- 4 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
DescribeConfigsRequest  key 32  versions 1-4  flexible 4+
  resources              []DescribeConfigsResource  1+
    resource_type        int8                       1+
    resource_name        string                     1+
    configuration_keys   []string                   1+  null
  include_synonyms       bool                       1+
  include_documentation  bool                       3+

DescribeConfigsResponse  key 32  versions 1-4  flexible 4+
  throttle_time_ms   int32                            1+
  results            []DescribeConfigsResult          1+
    error_code       int16                            1+
    error_message    string                           1+  null
    resource_type    int8                             1+
    resource_name    string                           1+
    configs          []DescribeConfigsResourceResult  1+
      name           string                           1+
      value          string                           1+  null
      read_only      bool                             1+
      config_source  int8                             1+  = -1
      is_sensitive   bool                             1+
      synonyms       []DescribeConfigsSynonym         1+
        name         string                           1+
        value        string                           1+  null
        source       int8                             1+
      config_type    int8                             3+
      documentation  string                           3+  null
"""

(
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
) = define(TABLE, __name__)
