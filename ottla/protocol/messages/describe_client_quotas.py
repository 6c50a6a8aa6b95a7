"""DescribeClientQuotas: the quotas of the entities that a filter matches (KIP-546).

By version:
- 1 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
DescribeClientQuotasRequest  key 48  versions 0-1  flexible 1+
  components     []ComponentData  0+
    entity_type  string           0+
    match_type   int8             0+
    match        string           0+  null
  strict         bool             0+

DescribeClientQuotasResponse  key 48  versions 0-1  flexible 1+
  throttle_time_ms  int32            0+
  error_code        int16            0+
  error_message     string           0+  null = null
  entries           []EntryData      0+  null
    entity          []EntityData     0+
      entity_type   string           0+
      entity_name   string           0+  null
    values          []ValueData      0+
      key           string           0+
      value         float64          0+
"""

(
    DescribeClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasResponse,
    EntryData,
    EntityData,
    ValueData,
) = define(TABLE, __name__)
