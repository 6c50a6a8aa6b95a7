"""What an error of etcd's gateway, or of the connection to it, means: for a transaction above all, whether it may have
been done. Pure.
"""

import os
from collections.abc import Mapping
from errno import ECONNRESET
from typing import Any

import aiohttp

from ottla.security.tls_failure import speaks_no_tls, tls_error_in, tls_failure

# gRPC's codes. What was not found is a lease that is gone.
_NOT_FOUND, _PERMISSION_DENIED, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 5, 7, 8, 14
# With these etcd refuses what it has not proposed, or what every member refuses alike: INVALID_ARGUMENT, NOT_FOUND,
# ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED and
# UNAUTHENTICATED. Others, such as CANCELLED, UNKNOWN, DEADLINE_EXCEEDED and INTERNAL, say nothing of the outcome.
_NOT_DONE = frozenset({3, 5, 6, _PERMISSION_DENIED, _RESOURCE_EXHAUSTED, 9, 11, 12, 16})
# UNAVAILABLE is both: these come before a proposal; "server stopped", "request timed out" or a connection of the
# gateway that broke come after one, which may be committed all the same.
_NOT_PROPOSED = ("etcdserver: no leader", "etcdserver: not capable")
# A token that has expired, that this member does not know, or that is older than the users are now. Tokens are looked
# at before anything is done; the older of the two last texts comes without etcd's name.
_OF_TOKENS = (
    "etcdserver: invalid auth token",
    "etcdserver: user name is empty",
    "etcdserver: revision of auth store is old",
    "auth: revision in header is old",
)
_DENIED = "permission denied"
_WRONG_PASSWORD = "etcdserver: authentication failed"
_WITHOUT_LOGIN = "etcdserver: authentication is not enabled"
# Only what comes through gRPC has its name from its certificate.
_COMMON_NAME = b"CommonName of client sending a request against gateway"
# What Go's server says to a client that speaks without TLS.
_TLS_WANTED = b"Client sent an HTTP request to an HTTPS server"


class EtcdError(Exception):
    """All of these."""


class Unanswered(EtcdError):
    """No endpoint has answered in time, or etcd would not do it."""


class NoEntry(Unanswered):
    """etcd, or the broker, does not accept who the other one is."""


class NotFound(EtcdError):
    """etcd has no such lease."""


class Doubtful(EtcdError):
    """etcd has answered with an error, and may have done it, or may do it yet."""


class NotServed(Doubtful):
    """A sentence of the listener's own, which has not passed the request on, and will not."""


class NotDone(EtcdError):
    """etcd has answered with an error, and has not done it. `again`: another endpoint, or later, may do better."""

    def __init__(self, message: str, again: bool) -> None:
        super().__init__(message)
        self.again = again


class TokenEnded(EtcdError):
    """etcd wants another token, and has not done it."""


class PermissionDenied(EtcdError):
    """The user may not do this in etcd."""


def failure_of(answer: Mapping[str, Any]) -> Exception:
    message, code = str(answer["error"]), answer.get("code")
    if _is_about_token(message):
        return TokenEnded(message)
    if code == _NOT_FOUND and "lease" in message:
        return NotFound(message)
    # The gateway's own errors have etcd's codes, but not its name: an answer too large for it was done.
    is_of_etcd = message.startswith("etcdserver:")
    if code == _PERMISSION_DENIED and is_of_etcd:
        return PermissionDenied(message)
    was_not_done = code in _NOT_DONE and is_of_etcd
    if was_not_done or (code == _UNAVAILABLE and message.startswith(_NOT_PROPOSED)):
        return NotDone(f"etcd: {message}", again=code in (_RESOURCE_EXHAUSTED, _UNAVAILABLE))
    return Doubtful(f"etcd: {message}")


def is_about_entry(cancel_reason: str) -> bool:
    """Why a watch has ended. Older members deny it to a token that they do not know."""
    return _is_about_token(cancel_reason) or _DENIED in cancel_reason


def _is_about_token(message: str) -> bool:
    return any(text in message for text in _OF_TOKENS)


def is_wrong_password(error: NotDone) -> bool:
    return _WRONG_PASSWORD in str(error)


def needs_no_login(error: NotDone) -> bool:
    return _WITHOUT_LOGIN in str(error)


def unreadable(text: bytes) -> Doubtful:
    """Of what is no answer of etcd's gateway."""
    if text.startswith(_TLS_WANTED):
        return NotServed("it speaks TLS: etcds:// is for that")
    if text.startswith(_COMMON_NAME):
        return NotServed("with users, it takes from a broker no certificate that has a common name (CN)")
    shown = text[:100].decode(errors="replace").strip()
    return Doubtful(f"its answer is none of etcd's: {shown!r}")


def refused_connection(error: Exception) -> str | None:
    """Why it does not come about with what both sides have; None where it may the next time."""
    if isinstance(error, NotServed):
        return str(error)
    found = tls_error_in(error)
    if found is None:
        return None
    if speaks_no_tls(found):
        return "it speaks without TLS: etcd:// is for that"
    return f"no TLS: {tls_failure(found)}"


def reason_of(error: Exception, *, has_tls: bool) -> str:
    """In the system's words where the system refused, without those of the libraries above it."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host name is not known"
    refused = refused_connection(error)
    if refused is not None:
        return refused
    # A listener of the other kind mostly says nothing.
    if isinstance(error, aiohttp.ServerDisconnectedError) and not has_tls:
        return "it has closed the connection without an answer; if it speaks TLS, etcds:// is for that"
    if isinstance(error, aiohttp.ClientConnectorError) and has_tls and error.errno in (None, ECONNRESET):
        return "it has broken off the TLS handshake; if it speaks without TLS, etcd:// is for that"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
