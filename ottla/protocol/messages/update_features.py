"""UpdateFeatures: the levels of the cluster's features, raised or lowered (KIP-584).

By version:
- 1 says whether a level is to be raised or lowered, and can ask for a check only.
- 2 changes all features or none: the answer has no results of each (KIP-1022).
"""

from ottla.protocol.schema import define

TABLE = """
UpdateFeaturesRequest  key 57  versions 0-2  flexible 0+
  timeout_ms         int32               0+  = 60000
  feature_updates    []FeatureUpdateKey  0+
    feature          string              0+
    max_version_level  int16             0+
    allow_downgrade  bool                0
    upgrade_type     int8                1+  = 1
  validate_only      bool                1+

UpdateFeaturesResponse  key 57  versions 0-2  flexible 0+
  throttle_time_ms   int32                     0+
  error_code         int16                     0+
  error_message      string                    0+  null = null
  results            []UpdatableFeatureResult  0-1
    feature          string                    0-1
    error_code       int16                     0-1
    error_message    string                    0-1  null = null
"""

UpdateFeaturesRequest, FeatureUpdateKey, UpdateFeaturesResponse, UpdatableFeatureResult = define(TABLE, __name__)
