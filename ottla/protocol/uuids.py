"""Topic ids and other UUIDs: 16 bytes on the wire, 22 characters of URL-safe base64 in files and tools."""

from base64 import urlsafe_b64encode

UUID_SIZE = 16


def uuid_text(uuid: bytes) -> str:
    """Kafka's text of a UUID, without padding."""
    assert len(uuid) == UUID_SIZE, f"a UUID of {len(uuid)} bytes"
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()
