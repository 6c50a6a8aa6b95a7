"""AlterUserScramCredentials: an administrator gives users SCRAM credentials, or takes them away (KIP-554).

What comes is the salted password, never the password.
"""

from ottla.protocol.schema import define

TABLE = """
AlterUserScramCredentialsRequest  key 51  versions 0  flexible 0+
  deletions          []ScramCredentialDeletion   0+
    name             string                      0+
    mechanism        int8                        0+
  upsertions         []ScramCredentialUpsertion  0+
    name             string                      0+
    mechanism        int8                        0+
    iterations       int32                       0+
    salt             bytes                       0+
    salted_password  bytes                       0+

AlterUserScramCredentialsResponse  key 51  versions 0  flexible 0+
  throttle_time_ms  int32                              0+
  results           []AlterUserScramCredentialsResult  0+
    user            string                             0+
    error_code      int16                              0+
    error_message   string                             0+  null
"""

(
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
) = define(TABLE, __name__)
