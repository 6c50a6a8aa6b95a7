"""The contract that every metadata store has to pass, and what is special about the embedded one."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.store import (
    ABSENT,
    Change,
    CommitResult,
    Committed,
    Conflict,
    Delete,
    Entry,
    Expect,
    MetadataStore,
    Put,
    StoreError,
    Unavailable,
)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store = EmbeddedStore(tmp_path / "meta.sqlite" if request.param == "file" else None)
    yield store
    store.close()


def commit(store: MetadataStore, *changes: Change, expected: tuple[Expect, ...] = ()) -> CommitResult:
    results: list[CommitResult] = []
    store.commit(expected, changes, results.append)
    (result,) = results
    return result


def read(store: MetadataStore, prefix: str = "") -> list[Entry]:
    found: list[Entry] = []
    store.read(prefix, found.extend)
    return found


def test_a_transaction_is_visible_as_a_whole_with_its_revision(store: MetadataStore) -> None:
    result = commit(store, Put("b", b"2"), Put("a", b"1"))

    assert isinstance(result, Committed)
    assert read(store) == [Entry("a", b"1", result.revision), Entry("b", b"2", result.revision)]


def test_revisions_grow_with_every_transaction(store: MetadataStore) -> None:
    first = commit(store, Put("a", b"1"))
    second = commit(store, Put("b", b"2"))

    assert isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert second.revision > first.revision


def test_a_read_is_limited_to_its_prefix_and_sorted(store: MetadataStore) -> None:
    commit(store, Put("t/b", b""), Put("t/a", b""), Put("u", b""), Put("t", b""))

    assert [entry.key for entry in read(store, "t/")] == ["t/a", "t/b"]


def test_a_transaction_changes_nothing_when_one_expectation_fails(store: MetadataStore) -> None:
    first = commit(store, Put("a", b"1"))
    assert isinstance(first, Committed)

    expected = (Expect("a", first.revision), Expect("b", first.revision))
    assert commit(store, Put("a", b"2"), expected=expected) == Conflict("b")
    assert [entry.value for entry in read(store)] == [b"1"]


def test_expecting_a_key_to_be_absent_holds_once(store: MetadataStore) -> None:
    assert isinstance(commit(store, Put("a", b"1"), expected=(Expect("a", ABSENT),)), Committed)
    assert commit(store, Put("a", b"2"), expected=(Expect("a", ABSENT),)) == Conflict("a")


def test_a_key_that_was_overwritten_has_another_revision(store: MetadataStore) -> None:
    first = commit(store, Put("a", b"1"))
    assert isinstance(first, Committed)
    commit(store, Put("a", b"2"))

    assert commit(store, Delete("a"), expected=(Expect("a", first.revision),)) == Conflict("a")


def test_a_deleted_key_is_absent(store: MetadataStore) -> None:
    commit(store, Put("a", b"1"))
    commit(store, Delete("a"), Delete("never was"))

    assert read(store) == []
    assert isinstance(commit(store, Put("a", b"2"), expected=(Expect("a", ABSENT),)), Committed)


def test_what_was_committed_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "meta.sqlite"
    store = EmbeddedStore(path)
    commit(store, Put("a", b"1"), Put("b", b"2"))
    last = commit(store, Delete("b"))
    assert isinstance(last, Committed)
    store.close()

    again = EmbeddedStore(path)
    assert [(entry.key, entry.value) for entry in read(again)] == [("a", b"1")]
    after = commit(again, Put("c", b"3"))
    assert isinstance(after, Committed)
    assert after.revision > last.revision
    again.close()


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "meta.sqlite")
    with pytest.raises(StoreError, match="cannot be used"):
        EmbeddedStore(tmp_path / "meta.sqlite")
    store.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="cannot be used"):
        EmbeddedStore(path)


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StoreError, match="not a metadata file of Ottla"):
        EmbeddedStore(path)


def test_a_layout_of_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.sqlite"
    EmbeddedStore(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=99")
    other.close()
    with pytest.raises(StoreError, match="layout 99"):
        EmbeddedStore(path)


def test_a_store_that_cannot_write_says_so_and_keeps_what_it_had(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "meta.sqlite")
    commit(store, Put("a", b"1"))
    store._database.execute("PRAGMA query_only=1")

    assert isinstance(commit(store, Put("a", b"2")), Unavailable)
    assert [entry.value for entry in read(store)] == [b"1"]
    store._database.execute("PRAGMA query_only=0")
    assert isinstance(commit(store, Put("a", b"3")), Committed)
    store.close()
