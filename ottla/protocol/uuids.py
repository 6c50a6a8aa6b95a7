"""Topic ids and other UUIDs: 16 bytes on the wire, 22 characters of URL-safe base64 in files and tools."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

UUID_SIZE = 16


def uuid_text(uuid: bytes) -> str:
    """Kafka's text of a UUID, without padding."""
    assert len(uuid) == UUID_SIZE, f"a UUID of {len(uuid)} bytes"
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of Kafka's text; ValueError when it is not one."""
    try:
        uuid = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        uuid = b""
    if len(uuid) != UUID_SIZE or uuid_text(uuid) != text.rstrip("="):
        raise ValueError(f"{text!r} is not a UUID of 16 bytes in URL-safe base64")
    return uuid
