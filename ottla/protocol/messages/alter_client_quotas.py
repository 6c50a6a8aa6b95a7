"""AlterClientQuotas: users, client ids and addresses get quotas, or lose them (KIP-546).

By version:
- 1 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
AlterClientQuotasRequest  key 49  versions 0-1  flexible 1+
  entries          []EntryData   0+
    entity         []EntityData  0+
      entity_type  string        0+
      entity_name  string        0+  null
    ops            []OpData      0+
      key          string        0+
      value        float64       0+
      remove       bool          0+
  validate_only    bool          0+

AlterClientQuotasResponse  key 49  versions 0-1  flexible 1+
  throttle_time_ms   int32                    0+
  entries            []EntryResult            0+
    error_code       int16                    0+
    error_message    string                   0+  null
    entity           []EntityResult           0+
      entity_type    string                   0+
      entity_name    string                   0+  null
"""

(
    AlterClientQuotasRequest,
    EntryData,
    EntityData,
    OpData,
    AlterClientQuotasResponse,
    EntryResult,
    EntityResult,
) = define(TABLE, __name__)
