"""DescribeUserScramCredentials: which users have SCRAM credentials, by which mechanism (KIP-554)."""

from ottla.protocol.schema import define

TABLE = """
DescribeUserScramCredentialsRequest  key 50  versions 0  flexible 0+
  users    []UserName  0+  null
    name   string      0+

DescribeUserScramCredentialsResponse  key 50  versions 0  flexible 0+
  throttle_time_ms    int32                                 0+
  error_code          int16                                 0+
  error_message       string                                0+  null
  results             []DescribeUserScramCredentialsResult  0+
    user              string                                0+
    error_code        int16                                 0+
    error_message     string                                0+  null
    credential_infos  []CredentialInfo                      0+
      mechanism       int8                                  0+
      iterations      int32                                 0+
"""

(
    DescribeUserScramCredentialsRequest,
    UserName,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    CredentialInfo,
) = define(TABLE, __name__)
