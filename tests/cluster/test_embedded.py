"""What is special about the embedded metadata store: its file, its sessions, the order of its callbacks."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.store import (
    Change,
    CommitResult,
    Committed,
    Delete,
    Entry,
    KeepAliveResult,
    KeptAlive,
    Put,
    Snapshot,
    StoreError,
    Unavailable,
)
from ottla.timer.wheel import TimingWheel
from tests.cluster.stores import Clock


def commit(store: EmbeddedStore, *changes: Change) -> CommitResult:
    results: list[CommitResult] = []
    store.commit([], changes, results.append)
    (result,) = results
    return result


def read(store: EmbeddedStore) -> list[Entry]:
    found: list[Entry] = []
    store.read("", lambda snapshot: found.extend(snapshot.entries))
    return found


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
    store._file._database.execute("PRAGMA query_only=1")

    assert isinstance(commit(store, Put("a", b"2")), Unavailable)
    assert [entry.value for entry in read(store)] == [b"1"]
    store._file._database.execute("PRAGMA query_only=0")
    assert isinstance(commit(store, Put("a", b"3")), Committed)
    store.close()


def test_leases_do_not_outlive_the_process_and_revisions_go_on(tmp_path: Path) -> None:
    """I-8: a broker epoch is a revision, also that of a session's end."""
    clock = Clock()
    store = EmbeddedStore(tmp_path / "meta.sqlite", clock=clock, wheel=TimingWheel())
    store.grant(1000, lambda granted: None)
    commit(store, Put("a", b"1"), Put("b", b""))
    last = commit(store, Put("b", b"2", 1), Put("c", b"3", 1))
    assert isinstance(last, Committed)
    store.close()

    again = EmbeddedStore(tmp_path / "meta.sqlite")
    assert [entry.key for entry in read(again)] == ["a"]
    after = commit(again, Put("a", b"4"))
    assert isinstance(after, Committed)
    assert after.revision > last.revision
    again.close()


def test_a_lease_that_was_noticed_late_may_still_be_renewed() -> None:
    """Its holder shares the store's loop: what held up one held up the other."""
    clock, wheel = Clock(), TimingWheel()
    store = EmbeddedStore(clock=clock, wheel=wheel, renewal_grace_ms=50)
    store.grant(1000, lambda granted: None)
    assert isinstance(commit(store, Put("a", b"1", 1)), Committed)

    clock.now = 4000
    wheel.advance(4000)
    renewed: list[KeepAliveResult] = []
    store.keep_alive(1, renewed.append)
    assert [type(result) for result in renewed] == [KeptAlive]

    for now, found in ((4999, ["a"]), (5000, ["a"]), (5049, ["a"]), (5050, [])):
        clock.now = now
        wheel.advance(now)
        assert [entry.key for entry in read(store)] == found
    store.close()


def test_a_full_disk_does_not_keep_a_lease_from_ending(tmp_path: Path) -> None:
    """What is under a lease is not in the file."""
    clock, wheel = Clock(), TimingWheel()
    store = EmbeddedStore(tmp_path / "meta.sqlite", clock=clock, wheel=wheel)
    store.grant(1000, lambda granted: None)
    store._file._database.execute("PRAGMA query_only=1")
    assert isinstance(commit(store, Put("a", b"1", 1)), Committed)
    assert isinstance(commit(store, Put("b", b"1"), Put("c", b"1", 1)), Unavailable)

    clock.now = 1000
    wheel.advance(1000)
    assert read(store) == []
    store.close()


def test_without_a_wheel_a_lease_lasts_until_it_is_revoked() -> None:
    store = EmbeddedStore()
    answers: list[Any] = []
    store.grant(1000, answers.append)
    commit(store, Put("a", b"1", answers[0].lease_id))
    store.keep_alive(answers[0].lease_id, answers.append)
    assert isinstance(answers[1], KeptAlive)
    assert [entry.key for entry in read(store)] == ["a"]

    store.revoke(answers[0].lease_id, answers.append)
    assert read(store) == []


def test_watch_whose_callback_raises_does_not_stop_the_others() -> None:
    posted: list[Any] = []
    store = EmbeddedStore(post=posted.append)
    seen: list[Any] = []
    store.watch("", 1, lambda event: 1 // 0)
    store.watch("", 1, seen.append)
    commit(store, Put("a", b"1"))

    posted.pop(0)()
    with pytest.raises(ZeroDivisionError):
        posted.pop(0)()
    posted.pop(0)()
    assert [event.revision for event in seen] == [1]


def test_a_store_that_is_shared_makes_one_transaction_in_a_step() -> None:
    steps: list[Any] = []
    store = EmbeddedStore(post=steps.append)
    answers: list[Any] = []
    for number in range(3):
        store.commit([], [Put("a", str(number).encode())], answers.append)
    store.read("a", answers.append)
    done_by_step = [len(answers)]
    while steps:
        steps.pop(0)()
        done_by_step.append(len(answers))

    assert done_by_step == [1, 2, 3, 4]
    assert answers == [Committed(1), Committed(2), Committed(3), Snapshot([Entry("a", b"2", 3)], 3)]


def test_shared_store_calls_one_watch_per_step_and_transaction() -> None:
    steps: list[Any] = []
    store = EmbeddedStore(post=steps.append)
    seen: list[tuple[str, int]] = []
    for name in ("first", "second"):
        store.watch("", 1, lambda event, name=name: seen.append((name, event.revision)))
    for key in ("a", "b"):
        store.commit([], [Put(key, b"1")], lambda result: None)
    delivered_by_step: list[int] = []
    while steps:
        before = len(seen)
        steps.pop(0)()
        delivered_by_step.append(len(seen) - before)

    assert max(delivered_by_step) == 1
    assert sorted(seen) == [("first", 1), ("first", 2), ("second", 1), ("second", 2)]
    assert [revision for name, revision in seen if name == "first"] == [1, 2]


def test_answer_that_raises_does_not_stop_the_next_transaction() -> None:
    steps: list[Any] = []
    store = EmbeddedStore(post=steps.append)
    store.commit([], [Put("a", b"1")], lambda result: None)
    store.commit([], [Put("a", b"2")], lambda result: 1 // 0)
    store.commit([], [Put("a", b"3")], lambda result: None)

    with pytest.raises(ZeroDivisionError):
        steps.pop(0)()
    while steps:
        steps.pop(0)()
    assert [entry.value for entry in read(store)] == [b"3"]


def test_request_of_a_closed_session_is_done_without_an_answer() -> None:
    steps: list[Any] = []
    store = EmbeddedStore(post=steps.append)
    session, answers = store.session(), []
    for number in range(2):
        session.commit([], [Put("a", str(number).encode())], answers.append)
    session.close()
    while steps:
        steps.pop(0)()

    assert answers == [Committed(1)]
    assert [entry.value for entry in read(store)] == [b"1"]


def test_a_closed_session_hears_and_says_nothing() -> None:
    store = EmbeddedStore()
    session, seen = store.session(), []
    session.watch("", 1, seen.append)
    session.close()
    session.commit([], [Put("a", b"1")], seen.append)
    commit(store, Put("b", b"1"))

    assert seen == []
    assert [entry.key for entry in read(store)] == ["b"]
