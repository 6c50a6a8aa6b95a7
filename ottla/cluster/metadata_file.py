"""The SQLite file of the embedded metadata store: what was committed, and the revision it was committed at."""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from ottla.cluster.store import NO_LEASE, Change, Entry, Put, StoreError

# "otla", so that a foreign SQLite file is recognised; and the version of the table below.
_APPLICATION_ID = 0x6F746C61
_LAYOUT = 1
FILE_MODE = 0o600


class MetadataFile:
    """Keys under a lease are not written: what opens the file again is another process, and no lease outlived it."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError when the file cannot be opened, is in use, or is not a metadata store."""
        self._in_use = Lock()
        _close_to_others(path)
        try:
            # Opened in one thread and written in others, one after the other.
            self._database = sqlite3.connect(path, isolation_level=None, timeout=0.0, check_same_thread=False)
            _prepare(self._database, path)
        except sqlite3.Error as error:
            raise StoreError(f"the metadata file {path} cannot be used: {error}") from error

    def load(self) -> tuple[list[Entry], int]:
        entries = [Entry(*row) for row in self._database.execute("SELECT key, value, revision FROM entry")]
        (revision,) = self._database.execute("SELECT revision FROM latest").fetchone()
        return entries, revision

    def write(self, transactions: Iterable[tuple[Sequence[Change], int]]) -> str | None:
        """Write what transactions change at their revisions, all or none of it. Synced to disk when this returns None;
        else why nothing was written. One call at a time, from any thread."""
        with self._in_use:
            database = self._database
            try:
                database.execute("BEGIN IMMEDIATE")
                for changes, revision in transactions:
                    self._write_one(changes, revision)
                database.execute("COMMIT")
            except sqlite3.Error as error:
                return self._undo(error)
        return None

    def _write_one(self, changes: Sequence[Change], revision: int) -> None:
        execute = self._database.execute
        for change in changes:
            if isinstance(change, Put) and change.lease_id == NO_LEASE:
                execute("REPLACE INTO entry VALUES (?, ?, ?)", (change.key, change.value, revision))
            else:
                execute("DELETE FROM entry WHERE key = ?", (change.key,))
        execute("UPDATE latest SET revision = ?", (revision,))

    def _undo(self, error: sqlite3.Error) -> str:
        try:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        except sqlite3.Error as worse:
            return f"{error}; {worse}"
        return str(error)

    def close(self) -> None:
        """After a write that is under way."""
        with self._in_use:
            self._database.close()


def _close_to_others(path: Path) -> None:
    """It holds what users log in with. SQLite gives the files beside it the modes of this one."""
    # What is wrong with the path SQLite says. A file that is there is not opened: closing it again would end the locks
    # that another store of this process has on it.
    with suppress(OSError):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        except FileExistsError:
            path.chmod(FILE_MODE)


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    # Exclusive: one process at a time, and no shared-memory file beside the log.
    database.execute("PRAGMA locking_mode=EXCLUSIVE")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        _create(database)
        return
    if application_id != _APPLICATION_ID:
        raise StoreError(f"{path} is not a metadata file of Ottla")
    (layout,) = database.execute("PRAGMA user_version").fetchone()
    if layout != _LAYOUT:
        raise StoreError(f"{path} has layout {layout}, this version of Ottla reads layout {_LAYOUT}")
    # A read alone takes the lock that keeps a second process out.
    database.execute("BEGIN EXCLUSIVE")
    database.execute("COMMIT")


def _create(database: sqlite3.Connection) -> None:
    database.execute("BEGIN EXCLUSIVE")
    database.execute("CREATE TABLE entry (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL)")
    database.execute("CREATE TABLE latest (revision INTEGER NOT NULL)")
    database.execute("INSERT INTO latest VALUES (0)")
    database.execute(f"PRAGMA application_id={_APPLICATION_ID}")
    database.execute(f"PRAGMA user_version={_LAYOUT}")
    database.execute("COMMIT")
