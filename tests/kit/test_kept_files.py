"""A file that a snapshot has a name of stays as it is, whatever is done to the log's own."""

from pathlib import Path

import pytest

from ottla.testing.snapshots.kept_files import KeptFiles, copy_file
from ottla.testing.surroundings.disk_files import DiskFileSystem, DiskState


class Files(DiskFileSystem):
    """Those of a broker whose files snapshots keep."""

    def __init__(self, directory: Path) -> None:
        self.kept = KeptFiles()
        super().__init__(DiskState(directory, self.kept.before_change))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def written(files: Files, path: Path, content: bytes) -> Path:
    file = files.open(path)
    file.writev([content])
    file.close()
    return path


def test_kept_file_is_another_name_until_it_changes(files: Files, tmp_path: Path) -> None:
    source, kept = written(files, tmp_path / "a", b"sealed"), tmp_path / "kept"

    files.kept.keep(source, kept)

    assert kept.samefile(source)


def test_truncation_leaves_kept_bytes_alone(files: Files, tmp_path: Path) -> None:
    source, kept = written(files, tmp_path / "a", b"sealed"), tmp_path / "kept"
    open_before = files.open(source)
    files.kept.keep(source, kept)

    open_before.truncate(2)
    open_before.writev([b"!"])

    assert (source.read_bytes(), kept.read_bytes()) == (b"se!", b"sealed")


def test_append_leaves_kept_bytes_alone(files: Files, tmp_path: Path) -> None:
    source, kept = written(files, tmp_path / "a", b"sealed"), tmp_path / "kept"
    files.kept.keep(source, kept)

    written(files, source, b" and more")

    assert (source.read_bytes(), kept.read_bytes()) == (b"sealed and more", b"sealed")


def test_names_of_all_snapshots_keep_their_bytes(files: Files, tmp_path: Path) -> None:
    """Two snapshots, and a log that was made of the second one's copy: each may be changed, one after the other."""
    source = written(files, tmp_path / "a", b"sealed")
    first, second, restored = tmp_path / "first", tmp_path / "second", tmp_path / "restored"
    files.kept.keep(source, first)
    files.kept.keep(source, second)
    files.open(source).truncate(1)
    files.kept.link(second, restored)

    files.open(restored).truncate(0)

    assert [each.read_bytes() for each in (source, first, second, restored)] == [b"s", b"sealed", b"sealed", b""]
    assert first.samefile(second)


def test_forgotten_file_is_changed_in_place(files: Files, tmp_path: Path) -> None:
    source, kept = written(files, tmp_path / "a", b"sealed"), tmp_path / "kept"
    files.kept.keep(source, kept)
    files.kept.forget([kept])

    files.open(source).truncate(0)

    assert kept.read_bytes() == b""


def test_replaced_or_removed_name_leaves_the_kept_file(files: Files, tmp_path: Path) -> None:
    """As compaction and retention do it."""
    source, kept = written(files, tmp_path / "a", b"sealed"), tmp_path / "kept"
    files.kept.keep(source, kept)

    files.rename(written(files, tmp_path / "b", b"compacted"), source)
    files.remove(source)

    assert kept.read_bytes() == b"sealed"


@pytest.mark.parametrize("directory", [Path("/dev/shm"), None], ids=["memory", "disk"])
def test_copy_has_the_first_bytes(directory: Path | None, tmp_path: Path) -> None:
    source, target = (directory or tmp_path) / "ottla-copy-source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 100)
    try:
        copy_file(source, target, 20_001)
    finally:
        source.unlink()

    assert target.read_bytes() == (bytes(range(256)) * 100)[:20_001]
