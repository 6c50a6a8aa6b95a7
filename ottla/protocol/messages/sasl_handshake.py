"""SaslHandshake: the client names the mechanism by which it logs in (KIP-43).

By version:
- 0 is followed by bare tokens, each behind its size.
- 1 is followed by SaslAuthenticate requests (KIP-152).

It is never flexible: clients that look for a version by its layout take the highest one that they know.
"""

from ottla.protocol.schema import define

TABLE = """
SaslHandshakeRequest  key 17  versions 0-1  flexible none
  mechanism  string  0+

SaslHandshakeResponse  key 17  versions 0-1  flexible none
  error_code  int16     0+
  mechanisms  []string  0+
"""

SaslHandshakeRequest, SaslHandshakeResponse = define(TABLE, __name__)
