import pytest

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.uuids import uuid_text


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
