"""DeleteAcls: the ACLs that filters match are deleted (KIP-140).

By version:
- 1 has the type of the pattern (KIP-290).
- 2 is flexible.
- 3 knows resources of the type USER (KIP-373).
"""

from ottla.protocol.schema import define

TABLE = """
DeleteAclsRequest  key 31  versions 1-3  flexible 2+
  filters                 []DeleteAclsFilter  1+
    resource_type_filter  int8                1+
    resource_name_filter  string              1+  null
    pattern_type_filter   int8                1+  = 3
    principal_filter      string              1+  null
    host_filter           string              1+  null
    operation             int8                1+
    permission_type       int8                1+

DeleteAclsResponse  key 31  versions 1-3  flexible 2+
  throttle_time_ms   int32                      1+
  filter_results     []DeleteAclsFilterResult   1+
    error_code       int16                      1+
    error_message    string                     1+  null
    matching_acls    []DeleteAclsMatchingAcl    1+
      error_code     int16                      1+
      error_message  string                     1+  null
      resource_type  int8                       1+
      resource_name  string                     1+
      pattern_type   int8                       1+  = 3
      principal      string                     1+
      host           string                     1+
      operation      int8                       1+
      permission_type  int8                     1+
"""

(
    DeleteAclsRequest,
    DeleteAclsFilter,
    DeleteAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
) = define(TABLE, __name__)
