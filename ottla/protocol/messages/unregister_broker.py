"""UnregisterBroker: forget a broker that will not come back (KIP-631)."""

from ottla.protocol.schema import define

TABLE = """
UnregisterBrokerRequest  key 64  versions 0-0  flexible 0+
  broker_id  int32  0+

UnregisterBrokerResponse  key 64  versions 0-0  flexible 0+
  throttle_time_ms  int32   0+
  error_code        int16   0+
  error_message     string  0+  null = null
"""

UnregisterBrokerRequest, UnregisterBrokerResponse = define(TABLE, __name__)
