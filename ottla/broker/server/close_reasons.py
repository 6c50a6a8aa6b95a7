"""Why connections of clients are closed: as a metric counts it, and in words for the log."""

from enum import StrEnum

from ottla.broker.server.dispatch import VERSION_BITS


class CloseReason(StrEnum):
    """A closed set: the values of the label `reason` of `ottla_connections_closed_total`."""

    CLIENT = "client"
    """Its client has ended it in an orderly way."""
    LOST = "lost"
    """It was reset, or the network failed."""
    IDLE = "idle"
    """No request for `connections.max.idle.ms`."""
    MALFORMED = "malformed"
    """What came is no request that can be parsed."""
    TOO_LARGE = "too large"
    """A frame of more than `socket.request.max.bytes`."""
    NOT_KAFKA = "not kafka"
    """The client speaks TLS where there is none, or HTTP."""
    TLS_FAILED = "tls failed"
    """No TLS handshake, or one that came to nothing, on a listener with TLS; or bytes that are no TLS any more."""
    NOT_AUTHENTICATED = "not authenticated"
    """It did not log in in time, or asked for something before."""
    AUTHENTICATION_FAILED = "authentication failed"
    """It could not prove who it is."""
    SESSION_EXPIRED = "session expired"
    """It went on after the time for which its login counts."""
    NOT_SERVED = "not served"
    """An API, or a version of one, that this broker does not have."""
    REQUEST_FAILED = "request failed"
    """An error that the response has no place for, as with acks=0."""
    UNHANDLED_ERROR = "unhandled error"
    """An error that no part expected: a bug."""
    OVER_LIMIT = "over limit"
    """There are too many connections, or too few descriptors."""
    SLOW_CLIENT = "slow client"
    """Its client does not read while connections hold too much memory."""
    BROKER_STOPS = "broker stops"
    """This broker ends."""


# What may stand where a frame has its size, by its first bytes: the name of the protocol that it belongs to.
FOREIGN = {b"\x16\x03": "TLS", b"GE": "HTTP", b"PO": "HTTP", b"PU": "HTTP", b"HE": "HTTP", b"OP": "HTTP", b"PR": "HTTP"}
TLS_START, KAFKA_START = b"\x16", b"\0"
# The heartbeat of members with group.protocol=consumer (KIP-848).
CONSUMER_GROUP_HEARTBEAT = 68


def why_no_frame(start: bytes, size_max: int) -> tuple[CloseReason, str]:
    """Why a connection is closed that sends something with these first four bytes."""
    protocol = FOREIGN.get(start[:2])
    if protocol is not None:
        why = f"the client speaks {protocol}, and this listener Kafka's protocol without TLS"
        return CloseReason.NOT_KAFKA, why
    size = int.from_bytes(start, "big", signed=True)
    reason = CloseReason.TOO_LARGE if size > size_max else CloseReason.MALFORMED
    return reason, f"frame of {size} bytes, at most {size_max} allowed"


def why_no_tls(start: bytes) -> tuple[CloseReason, str] | None:
    """Why a connection to a listener with TLS is closed that begins with these bytes; None if they are those of TLS, or
    none."""
    if start[:1] in (b"", TLS_START):
        return None
    if FOREIGN.get(start[:2]) == "HTTP":
        return CloseReason.NOT_KAFKA, "the client speaks HTTP, and this listener Kafka's protocol with TLS"
    what = "Kafka's protocol without TLS" if start[:1] == KAFKA_START else "something else"
    return CloseReason.TLS_FAILED, f"the client speaks {what}, and this listener Kafka's protocol with TLS"


def why_not_served(api_and_version: int) -> str:
    """Why a connection is closed that asks for an API, or a version of it, that has no route."""
    key, version = api_and_version >> VERSION_BITS, api_and_version & ((1 << VERSION_BITS) - 1)
    reason = f"API {key} version {version} is not served"
    if key == CONSUMER_GROUP_HEARTBEAT:
        return f"{reason}: a consumer has group.protocol=consumer; set its group.protocol=classic"
    return reason
