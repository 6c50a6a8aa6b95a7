"""The SQLite file of the embedded metadata store: what was committed, and the revision it was committed at."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ottla.cluster.store import NO_LEASE, Change, Entry, Put, StoreError

# "otla", so that a foreign SQLite file is recognised; and the version of the table below.
_APPLICATION_ID = 0x6F746C61
_LAYOUT = 1


class MetadataFile:
    """Keys under a lease are not written: whoever opens the file again is another process, and no lease outlived it."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError when the file cannot be opened, is in use, or is not a metadata store."""
        try:
            self._database = sqlite3.connect(path, isolation_level=None, timeout=0.0)
            _prepare(self._database, path)
        except sqlite3.Error as error:
            raise StoreError(f"the metadata file {path} cannot be used: {error}") from error

    def load(self) -> tuple[list[Entry], int]:
        entries = [Entry(*row) for row in self._database.execute("SELECT key, value, revision FROM entry")]
        (revision,) = self._database.execute("SELECT revision FROM latest").fetchone()
        return entries, revision

    def write(self, changes: Sequence[Change], revision: int) -> None:
        """Synced to disk when this returns; raises sqlite3.Error, and then nothing was written."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                if isinstance(change, Put) and change.lease_id == NO_LEASE:
                    database.execute("REPLACE INTO entry VALUES (?, ?, ?)", (change.key, change.value, revision))
                else:
                    database.execute("DELETE FROM entry WHERE key = ?", (change.key,))
            database.execute("UPDATE latest SET revision = ?", (revision,))
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._database.close()


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
