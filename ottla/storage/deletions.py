"""Files on their way out: renamed at once, removed when nobody can be reading them any more.

A file that ends in `.deleted` belongs to no log; a crash leaves it to be removed when the directory is opened again.
Removing a large file may take long, so it is handed out as work for a thread.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.storage.files import FileSystem

DELETED_SUFFIX = ".deleted"


class DueDeletions(NamedTuple):
    """Files, and directories of files, whose time has come. `run` in any thread; it raises OSError."""

    files: FileSystem
    paths: tuple[Path, ...]

    def run(self) -> None:
        for path in self.paths:
            if self.files.is_directory(path):
                for name in self.files.list_directory(path):
                    self.files.remove(path / name)
                self.files.remove_directory(path)
            else:
                self.files.remove(path)


class Deletions:
    """The condemned files of one log."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._condemned: list[tuple[int, Path]] = []

    def condemn(self, paths: Sequence[Path], due_ms: int) -> None:
        """Rename the files of a segment, the log file first, and let them be removed from `due_ms` on.

        Raises OSError if the log file keeps its name; then nothing has changed. An index that outlives its log file is
        removed by the next start."""
        for n, path in enumerate(paths):
            try:
                self._condemn(path, due_ms)
            except OSError:
                if n == 0:
                    raise

    def _condemn(self, path: Path, due_ms: int) -> None:
        target = path.with_name(path.name + DELETED_SUFFIX)
        self._files.rename(path, target)
        self._condemned.append((due_ms, target))

    def take_due(self, now_ms: int) -> list[Path]:
        due = [path for due_ms, path in self._condemned if due_ms <= now_ms]
        self._condemned = [(due_ms, path) for due_ms, path in self._condemned if due_ms > now_ms]
        return due

    def take_all(self) -> list[Path]:
        paths = [path for _, path in self._condemned]
        self._condemned.clear()
        return paths
