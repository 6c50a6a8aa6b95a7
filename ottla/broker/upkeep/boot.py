"""Whether a data directory has lost nothing although its broker was not stopped cleanly.

What a killed process has written, the kernel has. Only a restart of the machine, or another machine, empties the page
cache; the kernel's boot id, kept in the data directory, shows that (docs/decisions/0009). After a failed write or sync
nothing is certain, and the id is removed.
"""

from pathlib import Path

from ottla.broker.logging import LazyLog
from ottla.storage.files import FileSystem, write_atomically
from ottla.storage.log_directory import LogDirectory

BOOT_ID = "ottla-boot-id"
_KERNELS = Path("/proc/sys/kernel/random/boot_id")


def kernel_boot_id() -> str:
    """Drawn by the kernel when it starts; empty where the system has none."""
    try:
        return _KERNELS.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Boot:
    def __init__(self, log: LazyLog, files: FileSystem, data_dir: Path, boot_id: str | None) -> None:
        self._log = log
        self._files = files
        self._path = data_dir / BOOT_ID
        self._boot_id = kernel_boot_id() if boot_id is None else boot_id
        self._is_kept = self._boot_id != "" and self._kept_id() == self._boot_id
        self.is_the_same = self._is_kept
        """Since the broker's last life in this directory."""

    def confirm(self) -> None:
        """From now on what was lost before is known to the cluster: what happens next is counted from this boot.

        After a clean shutdown nothing was lost, so that is said before its mark is removed: who is killed while it
        starts has no mark any more."""
        if self._is_kept or not self._boot_id:
            return
        try:
            # Not synced: should it be lost, so may be the records.
            write_atomically(self._files, self._path, self._boot_id.encode(), sync=False)
            self._is_kept = True
        except OSError as error:
            self._log.warning("the boot id could not be kept", why=str(error))

    def check_logs(self, directory: LogDirectory) -> None:
        """After a failed write or sync it is not certain any more that nothing is lost."""
        if self._is_kept and any(log.failure is not None for log in directory.logs.values()):
            self.forget()

    def forget(self) -> None:
        if not self._is_kept:
            return
        self._is_kept = False
        try:
            self._files.remove(self._path)
        except OSError as error:
            self._log.warning("the boot id could not be removed", why=str(error))

    def _kept_id(self) -> str:
        try:
            return self._files.read_bytes(self._path).decode("ascii", "replace")
        except OSError:
            return ""
