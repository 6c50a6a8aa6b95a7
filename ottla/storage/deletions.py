"""Files on their way out: renamed at once, removed when no reader can have them open any more.

A file that ends in `.deleted` belongs to no log; a crash leaves it to be removed when the directory is opened again.
Removing a large file may take long, so it is handed out as work for a thread.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ottla.storage.files import FileSystem
from ottla.storage.segment import RESTART_SUFFIX, Segment

DELETED_SUFFIX = ".deleted"
DUE_AT_ONCE = 0


class DueDeletions:
    """Files, and directories of files, whose time has come. `run` in any thread."""

    def __init__(self, files: FileSystem, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.failed: list[Path] = []
        """What could not be removed; it may be tried again."""
        self.error: OSError | None = None
        self._files = files

    def run(self) -> None:
        for path in self.paths:
            try:
                self._remove(path)
            except OSError as error:
                self.failed.append(path)
                self.error = error

    def _remove(self, path: Path) -> None:
        if not self._files.is_directory(path):
            self._files.remove(path)
            return
        for name in self._files.list_directory(path):
            self._files.remove(f"{path}/{name}")
        self._files.remove_directory(path)


class Deletions:
    """The deleted files of one log that are still on the disk."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._scheduled: list[tuple[int, Path]] = []

    def schedule_delete(self, paths: Sequence[Path], due_ms: int) -> None:
        """Rename the files of a segment, the log file first, and let them be removed from `due_ms` on.

        Raises OSError if the log file keeps its name; then nothing has changed. An index that outlives its log file is
        removed by the next start."""
        for n, path in enumerate(paths):
            try:
                self._schedule(path, due_ms)
            except OSError:
                if n == 0:
                    raise

    def _schedule(self, path: Path, due_ms: int) -> None:
        target = path.with_name(path.name + DELETED_SUFFIX)
        self._files.rename(path, target)
        self._scheduled.append((due_ms, target))

    def take_due(self, now_ms: int) -> list[Path]:
        due = [path for due_ms, path in self._scheduled if due_ms <= now_ms]
        self._scheduled = [(due_ms, path) for due_ms, path in self._scheduled if due_ms > now_ms]
        return due

    def take_all(self) -> list[Path]:
        paths = [path for _, path in self._scheduled]
        self._scheduled.clear()
        return paths


class LogRestart:
    """A log loses all its segments and goes on with an empty one, whenever the process is killed or the disk refuses.

    `new` is made first, under a name that opening the log acts upon (`.log.restart`, see `interrupted_work`): from then
    on the others count no more, however many of them are left. Those that the disk refuses to remove are tried again
    before the next segment begins, which would be removed with them otherwise, and when the log is closed."""

    def __init__(
        self, files: FileSystem, directory: Path, deletions: Deletions, old: Iterable[Segment], offset: int
    ) -> None:
        """Raises OSError; nothing has changed then."""
        self.new = Segment(files, directory, offset, suffix=RESTART_SUFFIX)
        # Nothing that may fail follows.
        self.new.make_file()
        self.new.clear()
        self._deletions = deletions
        self._old = list(old)

    def finish(self) -> None:
        """Remove the others, the last first, and give the new one its name. Raises OSError; call it again then."""
        while self._old:
            self._deletions.schedule_delete(self._old[-1].existing_paths(), DUE_AT_ONCE)
            self._old.pop().close_deleted()
        self.new.rename("")
