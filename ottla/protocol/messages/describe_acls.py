"""DescribeAcls: the ACLs that a filter matches (KIP-140).

By version:
- 1 has the type of the pattern (KIP-290).
- 2 is flexible.
- 3 knows resources of the type USER (KIP-373).
"""

from ottla.protocol.schema import define

TABLE = """
DescribeAclsRequest  key 29  versions 1-3  flexible 2+
  resource_type_filter  int8    1+
  resource_name_filter  string  1+  null
  pattern_type_filter   int8    1+  = 3
  principal_filter      string  1+  null
  host_filter           string  1+  null
  operation             int8    1+
  permission_type       int8    1+

DescribeAclsResponse  key 29  versions 1-3  flexible 2+
  throttle_time_ms   int32                   1+
  error_code         int16                   1+
  error_message      string                  1+  null = null
  resources          []DescribeAclsResource  1+
    resource_type    int8                    1+
    resource_name    string                  1+
    pattern_type     int8                    1+  = 3
    acls             []AclDescription        1+
      principal      string                  1+
      host           string                  1+
      operation      int8                    1+
      permission_type  int8                  1+
"""

DescribeAclsRequest, DescribeAclsResponse, DescribeAclsResource, AclDescription = define(TABLE, __name__)
