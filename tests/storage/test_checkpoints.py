"""The checkpoint files of a data directory have Kafka's form."""

import pytest

from ottla.storage import checkpoints


def test_checkpoints_have_kafkas_form() -> None:
    content = checkpoints.build_offsets({("b", 0): 7, ("a-b", 12): 0})
    assert content == b"0\n2\na-b 12 0\nb 0 7\n"
    assert checkpoints.parse_offsets(content) == {("b", 0): 7, ("a-b", 12): 0}


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff"]
)
def test_other_files_are_no_checkpoints(content: bytes) -> None:
    with pytest.raises(ValueError):
        checkpoints.parse_offsets(content)


@pytest.mark.parametrize(
    ("uuid", "text"),
    [(bytes(16), "A" * 22), (b"\xff" * 16, "_" * 21 + "w"), (bytes(range(16)), "AAECAwQFBgcICQoLDA0ODw")],
)
def test_uuid_is_written_as_22_characters_of_url_safe_base64(uuid: bytes, text: str) -> None:
    assert checkpoints.uuid_to_text(uuid) == text
    assert checkpoints.uuid_from_text(text) == uuid


@pytest.mark.parametrize("content", [b"", b"version: 1\ntopic_id: x", b"version: 0\n", b"version: 0\ntopic_id: AAAA"])
def test_other_files_are_no_partition_metadata(content: bytes) -> None:
    with pytest.raises(ValueError):
        checkpoints.parse_partition_metadata(content)
