import asyncio
import gc
import io

import pytest
from aiokafka.errors import MessageSizeTooLargeError, for_code

from ottla.cli.operations.produce import read_lines, sentence_of


class Pieces:
    """A stream that gives a piece at a time, as a pipe does."""

    def __init__(self, *pieces: bytes | OSError) -> None:
        self._pieces = list(pieces)

    def read(self, size: int) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else b""
        if isinstance(piece, OSError):
            raise piece
        return piece


class Endless:
    def read(self, size: int) -> bytes:
        return b"x\n"


async def lines_of(stream: Pieces | io.BytesIO) -> list[bytes]:
    return [line async for lines in read_lines(stream) for line in lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\nb\r", [b"a", b"b"]),
    ],
)
async def test_lines_end_where_they_end(text: bytes, lines: list[bytes]) -> None:
    assert await lines_of(io.BytesIO(text)) == lines


async def test_a_line_may_come_in_pieces() -> None:
    assert await lines_of(Pieces(b"one t", b"wo\nthr", b"ee\n")) == [b"one two", b"three"]


async def test_more_than_is_read_ahead() -> None:
    assert await lines_of(Pieces(*[b"x\n"] * 50)) == [b"x"] * 50


async def test_a_stream_that_breaks_is_an_error() -> None:
    with pytest.raises(OSError, match="broken"):
        await lines_of(Pieces(b"a\n", OSError("broken")))


@pytest.mark.filterwarnings("error")
def test_command_ends_while_its_reader_thread_blocks() -> None:
    async def first_lines() -> list[bytes]:
        async for lines in read_lines(Endless()):
            return lines
        return []

    assert asyncio.run(first_lines()) == [b"x"]
    gc.collect()


def test_error_of_a_brokers_disk_names_the_disk() -> None:
    assert sentence_of(for_code(56)()) == (
        "the broker could not write to its disk, which may be full; its log says why"
    )
    assert sentence_of(MessageSizeTooLargeError("too big")) == "[Error 10] MessageSizeTooLargeError: too big"
