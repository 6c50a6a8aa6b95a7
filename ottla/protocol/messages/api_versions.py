"""ApiVersions: which versions of which APIs a broker serves.

By version:
- 1 adds the throttle time to the answer.
- 2 is as 1; clients of it expect throttled answers at once.
- 3 is flexible; the request names the client software, the answer may list features (KIP-511, KIP-584).
- 4 may list features whose lowest version is 0, which clients of version 3 reject.
"""

from ottla.protocol.schema import define

TABLE = """
ApiVersionsRequest  key 18  versions 0-4  flexible 3+
  client_software_name     string  3+
  client_software_version  string  3+

ApiVersionsResponse  key 18  versions 0-4  flexible 3+
  error_code                int16                  0+
  api_keys                  []ApiVersion           0+
    api_key                 int16                  0+
    min_version             int16                  0+
    max_version             int16                  0+
  throttle_time_ms          int32                  1+
  supported_features        []SupportedFeatureKey  3+  tag 0
    name                    string                 3+
    min_version             int16                  3+
    max_version             int16                  3+
  finalized_features_epoch  int64                  3+  tag 1 = -1
  finalized_features        []FinalizedFeatureKey  3+  tag 2
    name                    string                 3+
    max_version_level       int16                  3+
    min_version_level       int16                  3+
  zk_migration_ready        bool                   3+  tag 3
"""

ApiVersionsRequest, ApiVersionsResponse, ApiVersion, SupportedFeatureKey, FinalizedFeatureKey = define(TABLE, __name__)
