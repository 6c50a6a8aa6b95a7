from pathlib import Path

import pytest

from ottla.protocol.records.record import Record, build_batch
from tests.storm.replicas import HEADER, batches, differences, high_watermarks, writers

END = {("t", 0): 4}


def batch(base_offset: int, records: int, *, epoch: int = 0, content: bytes = b"") -> bytes:
    rest = b"." * 38 + content
    length = HEADER.size - 12 + len(rest)
    return HEADER.pack(base_offset, length, epoch, 2, 0, 0, records - 1) + rest


def replica(directory: Path, *segments: bytes) -> Path:
    """A data directory with one replica of t-0."""
    partition = directory / "t-0"
    partition.mkdir(parents=True)
    for number, segment in enumerate(segments):
        (partition / f"{number:020}.log").write_bytes(segment)
    return directory


def test_replicas_may_differ_beyond_the_high_watermark(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", batch(0, 2) + batch(2, 2) + batch(4, 1, content=b"a"))
    other = replica(tmp_path / "2", batch(0, 2), batch(2, 2), batch(4, 1, content=b"b"))

    assert differences([one, other], END) == []


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (batch(0, 2) + batch(2, 2, content=b"x"), "a batch of offsets 2 to 3 in epoch 0 where the other has"),
        (batch(0, 2) + batch(2, 2, epoch=1), "a batch of offsets 2 to 3 in epoch 1 where the other has"),
        (batch(0, 2), "ends at 2, the high watermark is 4"),
        (batch(0, 2) + batch(2, 2)[:-1], "ends within a batch"),
        (batch(0, 2) + batch(2, 2)[:20], "ends within the header of a batch"),
        (b"", "ends at 0, the high watermark is 4"),
        (batch(0, 4), "a batch of offsets 0 to 3 in epoch 0 where the other has"),
    ],
    ids=["bytes", "epoch", "short", "torn batch", "torn header", "empty", "batched otherwise"],
)
def test_whatever_differs_below_it_is_said(tmp_path: Path, theirs: bytes, said: str) -> None:
    one = replica(tmp_path / "1", batch(0, 2) + batch(2, 2))
    other = replica(tmp_path / "2", theirs)

    found = differences([one, other], END)

    assert len(found) == 1
    assert said in found[0]


def test_batches_are_read_over_all_segments(tmp_path: Path) -> None:
    replica(tmp_path, batch(0, 2), batch(2, 3, epoch=5))

    found = [(one.base_offset, one.end_offset, one.leader_epoch) for one in batches(tmp_path / "t-0")]

    assert found == [(0, 2, 0), (2, 5, 5)]


def test_high_watermarks_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nt 0 4\n__consumer_offsets 3 17\n")

    assert high_watermarks(tmp_path) == {("t", 0): 4, ("__consumer_offsets", 3): 17}


def test_writers_of_records_are_read(tmp_path: Path) -> None:
    records = [Record(0, 0, None, b"v", ()), Record(1, 0, None, b"v", ())]
    batches_of = [build_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=0) for epoch in (0, 1)]
    batches_of[1] = (2).to_bytes(8, "big") + batches_of[1][8:]
    directory = replica(tmp_path, *batches_of) / "t-0"

    assert writers(directory) == {0: (7, 0), 1: (7, 0), 2: (7, 1), 3: (7, 1)}
