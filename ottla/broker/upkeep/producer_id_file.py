"""How far producer ids have been claimed in the cluster, as far as a broker has seen: `ottla-producer-ids` in its data
directory, a decimal number and a newline (docs/decisions/0038).

It only grows. A claim that came to nothing may leave it too high, which costs ids and nothing else. It is written in a
thread, once for all that are waiting; a write that fails is said in the log, and leaves what was there before.
"""

from collections.abc import Callable

from ottla.broker.runtime import Runtime
from ottla.broker.upkeep.checkpoint_writer import CheckpointWriter
from ottla.storage.files import FileSystem
from ottla.storage.log_directory import Checkpoint, LogDirectory

PRODUCER_IDS_FILE = "ottla-producer-ids"


class ProducerIdFile:
    def __init__(self, runtime: Runtime, files: FileSystem, directory: LogDirectory) -> None:
        self._runtime = runtime
        self._files = files
        self._path = directory.path / PRODUCER_IDS_FILE
        self._writer = CheckpointWriter(runtime, "producer ids", self._checkpoint)
        # In the file, durably.
        self._kept = self._read()
        # What the next write puts there.
        self._wanted = self._kept
        self.next_id_at_start = max(self._kept, directory.highest_producer_id + 1)
        """Above what the file says, and above all ids of producers in the logs: a directory of an earlier version has
        no file, and one that was put back with the metadata an older one."""

    def keep(self, next_id: int, done: Callable[[bool], None] = lambda _: None) -> None:
        """Let the file say that ids below `next_id` may have been given. `done` is called with whether it does so,
        durably."""
        if next_id <= self._kept:
            done(True)
            return
        self._wanted = max(self._wanted, next_id)

        def written(is_kept: bool) -> None:
            if is_kept:
                self._kept = max(self._kept, next_id)
            done(is_kept)

        self._writer.request(written)

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self._files, self._path, b"%d\n" % self._wanted)

    def _read(self) -> int:
        """0 without a file."""
        try:
            return int(self._files.read_bytes(self._path))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            self._runtime.log.storage.warning(
                "the file of producer ids cannot be read", path=str(self._path), why=str(error)
            )
            return 0
