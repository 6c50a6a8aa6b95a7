"""SaslAuthenticate: a token of a SASL mechanism, and the server's answer to it (KIP-152).

By version:
- 1 says how long the session lasts; 0 for ever (KIP-368).
- 2 is flexible.
"""

from ottla.protocol.schema import define

TABLE = """
SaslAuthenticateRequest  key 36  versions 0-2  flexible 2+
  auth_bytes  bytes  0+

SaslAuthenticateResponse  key 36  versions 0-2  flexible 2+
  error_code           int16   0+
  error_message        string  0+  null
  auth_bytes           bytes   0+
  session_lifetime_ms  int64   1+
"""

SaslAuthenticateRequest, SaslAuthenticateResponse = define(TABLE, __name__)
