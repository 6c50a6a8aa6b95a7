"""The metadata store of a process that hosts all its brokers: everything in memory, every transaction in SQLite first.

With a path, a transaction is synced to disk before its answer; without one, the store lives as long as the process.
"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.cluster.store import (
    ABSENT,
    Change,
    CommitResult,
    Committed,
    Conflict,
    Entry,
    Expect,
    Put,
    StoreError,
    Unavailable,
)

# "otla", so that a foreign SQLite file is recognised; and the version of the table below.
_APPLICATION_ID = 0x6F746C61
_LAYOUT = 1


class EmbeddedStore:
    def __init__(self, path: Path | None = None) -> None:
        """Raises StoreError when the file cannot be opened, is in use, or is not a metadata store."""
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self._database = _open(path) if path is not None else None
        if self._database is not None:
            self._load(self._database)

    def read(self, prefix: str, done: Callable[[Sequence[Entry]], None]) -> None:
        done([self._entries[key] for key in sorted(self._entries) if key.startswith(prefix)])

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        done(self._commit(expected, changes))

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _commit(self, expected: Sequence[Expect], changes: Sequence[Change]) -> CommitResult:
        for each in expected:
            entry = self._entries.get(each.key)
            if (ABSENT if entry is None else entry.revision) != each.revision:
                return Conflict(each.key)
        revision = self._revision + 1
        if self._database is not None:
            try:
                _write(self._database, changes, revision)
            except sqlite3.Error as error:
                return Unavailable(f"the metadata file cannot be written: {error}")
        self._revision = revision
        for change in changes:
            if isinstance(change, Put):
                self._entries[change.key] = Entry(change.key, change.value, revision)
            else:
                self._entries.pop(change.key, None)
        return Committed(revision)

    def _load(self, database: sqlite3.Connection) -> None:
        for key, value, revision in database.execute("SELECT key, value, revision FROM entry"):
            self._entries[key] = Entry(key, value, revision)
        (self._revision,) = database.execute("SELECT revision FROM latest").fetchone()


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, isolation_level=None, timeout=0.0)
        _prepare(database, path)
    except sqlite3.Error as error:
        raise StoreError(f"the metadata file {path} cannot be used: {error}") from error
    return database


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


def _write(database: sqlite3.Connection, changes: Sequence[Change], revision: int) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        for change in changes:
            if isinstance(change, Put):
                database.execute("REPLACE INTO entry VALUES (?, ?, ?)", (change.key, change.value, revision))
            else:
                database.execute("DELETE FROM entry WHERE key = ?", (change.key,))
        database.execute("UPDATE latest SET revision = ?", (revision,))
        database.execute("COMMIT")
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
