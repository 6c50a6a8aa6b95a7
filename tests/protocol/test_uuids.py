import pytest

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.uuids import parse_uuid, uuid_text


@pytest.mark.parametrize(
    ("uuid", "text"),
    [
        (ZERO_UUID, "A" * 22),
        (b"\xff" * 16, "_" * 21 + "w"),
        (bytes(range(16)), "AAECAwQFBgcICQoLDA0ODw"),
    ],
)
def test_a_uuid_is_22_characters_of_url_safe_base64(uuid: bytes, text: str) -> None:
    assert uuid_text(uuid) == text
    assert parse_uuid(text) == uuid


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "A" * 21 + "B", "ÄÖÜ", "/" * 22, "A" * 44])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        parse_uuid(text)
