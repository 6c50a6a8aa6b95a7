"""Disk errors, and data directories that cannot be used."""

import errno
from pathlib import Path

from ottla.protocol.errors import KafkaStorageError

_REASONS = {
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EIO: "the device reports an input/output error",
    errno.EMFILE: "this process has too many files open",
    errno.ENFILE: "the system has too many files open",
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "it is not a directory",
    errno.EEXIST: "there is a file of that name",
}


NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What opening a file may end in, and syncing one never does."""


class DataDirectoryError(Exception):
    """The data directory cannot be used at all. The message is one sentence for the user who started the broker."""


def reason_of(error: OSError) -> str:
    """The cause in plain words, for the end of a sentence."""
    if error.errno in _REASONS:
        return _REASONS[error.errno]
    return error.strerror or str(error)


def storage_error(action: str, path: Path | str, error: OSError) -> KafkaStorageError:
    """`storage_error("append to", path, error)`: the failure as clients and the log get it."""
    return KafkaStorageError(f"could not {action} {path}: {reason_of(error)}")
