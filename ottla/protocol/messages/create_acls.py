"""CreateAcls: principals are allowed or denied operations on resources (KIP-140).

By version:
- 1 has the type of the pattern (KIP-290).
- 2 is flexible.
- 3 knows resources of the type USER (KIP-373).
"""

from ottla.protocol.schema import define

TABLE = """
CreateAclsRequest  key 30  versions 1-3  flexible 2+
  creations                []AclCreation  1+
    resource_type          int8           1+
    resource_name          string         1+
    resource_pattern_type  int8           1+  = 3
    principal              string         1+
    host                   string         1+
    operation              int8           1+
    permission_type        int8           1+

CreateAclsResponse  key 30  versions 1-3  flexible 2+
  throttle_time_ms  int32                1+
  results           []AclCreationResult  1+
    error_code      int16                1+
    error_message   string               1+  null
"""

CreateAclsRequest, AclCreation, CreateAclsResponse, AclCreationResult = define(TABLE, __name__)
