"""What OpenSSL says of a connection that did not come about, in plain words."""

import ssl
from typing import Final

_FAILURES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has shown no certificate",
    "UNSUPPORTED_PROTOCOL": "the client has none of the versions of TLS that are enabled",
    "NO_SHARED_CIPHER": "the client has none of the cipher suites that are enabled",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority of the certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept the certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept the certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that the certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side wants a certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side has none of the versions of TLS that are enabled",
    "TLSV1_ALERT_INTERNAL_ERROR": "the other side has failed in it",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side has found no version and cipher suite in common",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the other side says that the certificate was revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other side does not take this kind of certificate",
    "TLSV1_ALERT_ACCESS_DENIED": "the other side lets in others only",
    "TLSV1_ALERT_DECRYPT_ERROR": "the other side could not verify a signature",
    "TLSV1_UNRECOGNIZED_NAME": "the other side has no certificate for this host name",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "the other side wants stronger ciphers",
    "SSLV3_ALERT_BAD_RECORD_MAC": "what was sent has been altered on its way",
    "SSLV3_ALERT_ILLEGAL_PARAMETER": "the other side does not understand the handshake",
    "TLSV1_ALERT_DECODE_ERROR": "the other side does not understand the handshake",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "what has come was altered on its way",
    "UNEXPECTED_EOF_WHILE_READING": "the other side has broken off",
    "HTTP_REQUEST": "HTTP is spoken, not TLS",
}

_NO_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"))


def tls_failure(error: ssl.SSLError) -> str:
    """For the log, without anything that the other side could choose."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    reason = error.reason or "it broke off"
    return _FAILURES.get(reason, reason.lower().replace("_", " "))


def tls_error_in(error: BaseException | None) -> ssl.SSLError | None:
    """What OpenSSL has said, in the errors that one of a library comes from; None for another cause, such as a
    connection that broke off.

    With TLS 1.3 a client hears with its first answer only that its certificate is refused."""
    found: ssl.SSLError | None = None
    while error is not None:
        # The innermost is OpenSSL's own.
        found = error if isinstance(error, ssl.SSLError) else found
        error = error.__cause__
    return None if isinstance(found, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) else found


def speaks_no_tls(error: ssl.SSLError) -> bool:
    """Whether what has come was no TLS at all.

    Many a server without TLS just closes the connection; that is another error."""
    return error.reason in _NO_TLS
