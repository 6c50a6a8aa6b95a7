import pytest

from ottla.storage import checkpoints
from ottla.storage.indexes import OffsetIndex, TimeIndex
from ottla.storage.leader_epoch_cache import EpochEntry, LeaderEpochCache, build_epochs, parse_epochs


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(EpochEntry(*entry) for entry in entries)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(7, (7, 300)), (4, (4, 250)), (5, (4, 250)), (1, (1, 100)), (0, (0, 0)), (9, (-1, -1)), (-1, (-1, -1))],
)
def test_the_end_offset_for_an_epoch_is_that_of_the_example(epoch: int, answer: tuple[int, int]) -> None:
    """§14.3.5"""
    assert cache((1, 0), (4, 100), (7, 250)).end_offset_for(epoch, 300) == answer


def test_an_empty_cache_knows_no_epoch() -> None:
    assert cache().end_offset_for(0, 10) == (-1, -1)
    assert (cache().latest_epoch, cache().epoch_at(5)) == (-1, -1)


@pytest.mark.parametrize(
    ("assigned", "entries"),
    [
        ((7, 260), ((1, 0), (4, 100), (7, 250))),
        ((8, 300), ((1, 0), (4, 100), (7, 250), (8, 300))),
        ((8, 250), ((1, 0), (4, 100), (8, 250))),
        ((5, 300), ((1, 0), (4, 100), (5, 300))),
        ((7, 200), ((1, 0), (4, 100), (7, 200))),
        ((0, 0), ((0, 0),)),
    ],
)
def test_an_assigned_epoch_removes_what_contradicts_it(
    assigned: tuple[int, int], entries: tuple[tuple[int, int], ...]
) -> None:
    """§14.3.2"""
    epochs = cache((1, 0), (4, 100), (7, 250))
    epochs.assign(*assigned)
    assert epochs.entries == entries


def test_truncation_trims_the_cache_on_either_side() -> None:
    """§14.3.4"""
    epochs = cache((1, 0), (4, 100), (7, 250))
    epochs.truncate_from_end(250)
    assert epochs.entries == ((1, 0), (4, 100))
    epochs.truncate_from_start(50)
    assert epochs.entries == ((1, 50), (4, 100))
    epochs.truncate_from_start(150)
    assert epochs.entries == ((4, 150),)
    assert [epochs.epoch_at(offset) for offset in (149, 150, 900)] == [-1, 4, 4]


def test_a_file_whose_entries_do_not_rise_is_believed_from_its_end() -> None:
    assert cache((1, 0), (5, 100), (3, 200), (4, 150)).entries == ((1, 0), (4, 150))


def test_checkpoints_have_kafkas_form() -> None:
    content = checkpoints.build_offsets({("b", 0): 7, ("a-b", 12): 0})
    assert content == b"0\n2\na-b 12 0\nb 0 7\n"
    assert checkpoints.parse_offsets(content) == {("b", 0): 7, ("a-b", 12): 0}
    assert build_epochs([EpochEntry(3, 40)]) == b"0\n1\n3 40\n"
    assert parse_epochs(b"0\n1\n3 40\n") == [(3, 40)]


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


def test_the_offset_index_leads_to_the_last_entry_at_or_before() -> None:
    index = OffsetIndex()
    for entry in ((10, 100), (20, 200), (30, 300)):
        index.append(*entry)
    assert [index.entry_before(offset) for offset in (9, 10, 19, 30, 99)] == [
        None,
        (10, 100),
        (10, 100),
        (30, 300),
        (30, 300),
    ]
    again = OffsetIndex.from_bytes(index.to_bytes() + bytes(80), 400)
    assert again is not None
    assert again.to_bytes() == index.to_bytes(), "preallocated space is no entry"


@pytest.mark.parametrize(
    "content", [b"x", bytes(7), b"\0\0\0\1\0\0\0\2" * 2, b"\0\0\0\1\0\0\1\0", b"\x80\0\0\1\0\0\0\2"]
)
def test_damaged_offset_indexes_are_noticed(content: bytes) -> None:
    assert OffsetIndex.from_bytes(content, 100) is None


def test_the_time_index_takes_only_rising_timestamps() -> None:
    index = TimeIndex()
    for entry in ((5, 1), (5, 2), (4, 3), (9, 4)):
        index.maybe_append(*entry)
    assert [index.entry(n) for n in range(len(index))] == [(5, 1), (9, 4)]
    assert [index.offset_before(timestamp) for timestamp in (4, 5, 6, 9, 10)] == [0, 0, 1, 1, 4]
    again = TimeIndex.from_bytes(index.to_bytes() + bytes(24))
    assert again is not None
    assert again.to_bytes() == index.to_bytes()


@pytest.mark.parametrize("content", [b"x", TimeIndex().to_bytes() + b"\0" * 11 + b"\1" + b"\0" * 8 + b"\1" * 3])
def test_damaged_time_indexes_are_noticed(content: bytes) -> None:
    assert TimeIndex.from_bytes(content) is None
