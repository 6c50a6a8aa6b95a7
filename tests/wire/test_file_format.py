"""Files of captures: what is written is read, and what is damaged ends in a sentence."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.wire_capture.file_format import (
    MAGIC,
    CaptureError,
    CaptureFile,
    CaptureRecord,
    build_block,
    build_header,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
RECORDS = st.lists(
    st.builds(
        CaptureRecord,
        st.integers(0, 255),
        INT64,
        INT64,
        st.integers(0, (1 << 32) - 1),
        st.binary(max_size=200),
    ),
    max_size=8,
)


def block(record: CaptureRecord) -> bytes:
    return b"".join(build_block([record]))


def written(directory: Path, content: bytes) -> Path:
    path = directory / "some.owire"
    path.write_bytes(content)
    return path


def read(path: Path) -> tuple[list[CaptureRecord], str | None]:
    with CaptureFile(path) as file:
        return list(file.records()), file.damage


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owire")


@given(RECORDS)
def test_records_are_read_as_they_were_written(directory: Path, records: list[CaptureRecord]) -> None:
    path = written(directory, build_header({"seed": 7}) + b"".join(map(block, records)))

    assert read(path) == (records, None)
    with CaptureFile(path) as file:
        assert file.header["seed"] == 7


@given(RECORDS, st.data())
def test_cut_file_gives_what_is_whole_and_says_so(
    directory: Path, records: list[CaptureRecord], data: st.DataObject
) -> None:
    header, built = build_header({}), [block(each) for each in records]
    content = header + b"".join(built)
    end = data.draw(st.integers(len(header), len(content)))

    found, damage = read(written(directory, content[:end]))

    assert found == records[: len(found)]
    is_whole = end in {len(header) + sum(map(len, built[:count])) for count in range(len(built) + 1)}
    assert (damage is None) == is_whole
    assert damage is None or ("is cut off" in damage and "\n" not in damage)


@given(RECORDS.filter(bool), st.data())
def test_flipped_bit_ends_the_records_before_it(
    directory: Path, records: list[CaptureRecord], data: st.DataObject
) -> None:
    header, built = build_header({}), b"".join(map(block, records))
    position = data.draw(st.integers(0, len(built) - 1))
    changed = bytearray(built)
    changed[position] ^= 1 << data.draw(st.integers(0, 7))

    found, damage = read(written(directory, header + bytes(changed)))

    assert damage is not None
    assert "at byte" in damage
    assert found == records[: len(found)]


@given(st.binary(max_size=300))
def test_anything_is_read_or_refused_in_a_sentence(directory: Path, content: bytes) -> None:
    for begin in (b"", MAGIC, build_header({})):
        try:
            _, damage = read(written(directory, begin + content))
        except CaptureError as error:
            damage = str(error)
        assert damage is None or damage.count("\n") == 0


def test_claims_of_a_file_take_no_memory(directory: Path) -> None:
    path = written(directory, build_header({}) + (0xFFFFFFF0).to_bytes(4, "big") + bytes(100))
    tracemalloc.start()

    _, damage = read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert damage is not None
    assert "claims 4294967280 bytes" in damage
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not a capture"),
        (b"PK\x03\x04 something else", "is not a capture"),
        (MAGIC, "its header is missing"),
        (build_header({})[:-3], "its header is cut off"),
        (build_header({}).replace(b'"format": 1', b'"format": 2'), "its header does not match its checksum"),
        (build_header({"format": 9}), "has another format"),
    ],
)
def test_what_is_no_capture_is_refused(directory: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(CaptureError, match=sentence):
        read(written(directory, content))


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"cannot read .*missing\.owire: it does not exist"):
        CaptureFile(tmp_path / "missing.owire")
