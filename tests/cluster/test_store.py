"""The contract that every metadata store has to pass: transactions, leases, watches."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ottla.cluster.scram_users import scram_credential_of, scram_key, scram_value
from ottla.cluster.store import (
    ABSENT,
    SCRAM,
    Changes,
    Committed,
    Compacted,
    Conflict,
    Delete,
    Entry,
    Expect,
    KeptAlive,
    LeaseLost,
    MetadataStore,
    Put,
    Snapshot,
    StoreWatcher,
)
from ottla.security.scram_credential import ScramHash, decoy
from tests.cluster.etcd_server import EtcdServer
from tests.cluster.stores import TTL_MS, Backend, Embedded, Etcd, Seen, answer, commit, committed, entries, lease, read


@pytest.fixture(scope="module")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["memory", "file", "etcd"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    backend: Backend
    if request.param == "etcd":
        backend = Etcd(request.getfixturevalue("etcd_server"), f"/{request.node.name}/")
    else:
        backend = Embedded(tmp_path / "meta.sqlite" if request.param == "file" else None)
    yield backend
    await backend.close()


@pytest.fixture
async def store(backend: Backend) -> MetadataStore:
    return backend.session()


# Transactions.


async def test_a_transaction_is_visible_as_a_whole_with_its_revision(store: MetadataStore) -> None:
    revision = await committed(store, Put("b", b"2"), Put("a", b""))

    assert await read(store) == Snapshot([Entry("a", b"", revision), Entry("b", b"2", revision)], revision)


async def test_revisions_grow_with_every_transaction(store: MetadataStore) -> None:
    assert await committed(store, Put("a", b"1")) < await committed(store, Put("b", b"2"))


async def test_a_read_is_limited_to_its_prefix_and_sorted(store: MetadataStore) -> None:
    await committed(store, Put("t/b", b""), Put("t/a", b""), Put("u", b""), Put("t", b""))

    assert [entry.key for entry in await entries(store, "t/")] == ["t/a", "t/b"]


async def test_names_of_users_are_data_in_their_keys(store: MetadataStore) -> None:
    owners = [
        (scram, name) for scram in ScramHash for name in ("a", "a/b", "../topics/t", "%2F", "ü\0\n", "'; --", "*")
    ]
    puts = [Put(scram_key((scram, name)), scram_value(decoy(scram, b"", name))) for scram, name in owners]
    await committed(store, *puts)
    found = dict(map(scram_credential_of, await entries(store, SCRAM)))
    await committed(store, Delete(scram_key(owners[0])))

    assert found == {(scram, name): decoy(scram, b"", name) for scram, name in owners}
    assert len(await entries(store, SCRAM)) == len(owners) - 1
    assert await entries(store, "topics/") == []


async def test_transaction_with_a_failed_expectation_changes_nothing(store: MetadataStore) -> None:
    first = await committed(store, Put("a", b"1"))

    expected = (Expect("a", first), Expect("b", first))
    assert await commit(store, Put("a", b"2"), expected=expected) == Conflict("b")
    assert [entry.value for entry in await entries(store)] == [b"1"]


async def test_expecting_a_key_to_be_absent_holds_once(store: MetadataStore) -> None:
    assert isinstance(await commit(store, Put("a", b"1"), expected=(Expect("a", ABSENT),)), Committed)
    assert await commit(store, Put("a", b"2"), expected=(Expect("a", ABSENT),)) == Conflict("a")


async def test_a_key_that_was_overwritten_has_another_revision(store: MetadataStore) -> None:
    first = await committed(store, Put("a", b"1"))
    await committed(store, Put("a", b"2"))

    assert await commit(store, Delete("a"), expected=(Expect("a", first),)) == Conflict("a")


async def test_a_deleted_key_is_absent(store: MetadataStore) -> None:
    await committed(store, Put("a", b"1"))
    await committed(store, Delete("a"), Delete("never was"))

    assert await entries(store) == []
    assert isinstance(await commit(store, Put("a", b"2"), expected=(Expect("a", ABSENT),)), Committed)


async def test_of_two_sessions_that_expect_the_same_one_wins(backend: Backend) -> None:
    first, second = backend.session(), backend.session()
    revision = await committed(first, Put("a", b"1"))

    results = [await commit(each, Put("a", b"2"), expected=(Expect("a", revision),)) for each in (first, second)]

    assert [type(result) for result in results] == [Committed, Conflict]


async def test_answers_come_in_the_order_of_the_calls(store: MetadataStore) -> None:
    seen = Seen()
    for number in range(5):
        store.commit([], [Put("a", str(number).encode())], seen)
    store.read("", seen)

    *results, snapshot = await seen.first(6)
    revisions = [result.revision for result in results]
    assert revisions == sorted(revisions)
    assert snapshot.entries == [Entry("a", b"4", revisions[-1])]


async def test_a_transaction_may_be_as_large_as_a_large_topic(store: MetadataStore) -> None:
    puts = [Put(f"p/{index:05}", b"x" * 60) for index in range(5000)]
    revision = await committed(store, Put("topic", b""), *puts, expected=(Expect("topic", ABSENT),))

    found = await entries(store, "p/")
    assert [entry.key for entry in found] == [put.key for put in puts]
    assert {entry.revision for entry in found} == {revision}


# Leases.


async def test_keys_of_a_lease_go_together_when_it_is_not_kept_alive(backend: Backend) -> None:
    store, seen = backend.session(), Seen()
    lease_id = await lease(store)
    revision = await committed(store, Put("a", b"1", lease_id), Put("b", b"2", lease_id), Put("c", b"3"))
    store.watch("", revision + 1, seen)

    await backend.elapse(TTL_MS)

    (event,) = await seen.first(1)
    assert (event.puts, sorted(event.deletes)) == ((), ["a", "b"])
    assert [entry.key for entry in await entries(store)] == ["c"]
    assert isinstance(await answer(lambda done: store.keep_alive(lease_id, done)), LeaseLost)
    assert isinstance(await commit(store, Put("d", b"", lease_id)), LeaseLost)
    assert [entry.key for entry in await entries(store)] == ["c"]


async def test_a_lease_kept_alive_keeps_its_keys(backend: Backend) -> None:
    store = backend.session()
    lease_id = await lease(store)
    await committed(store, Put("a", b"1", lease_id))

    for _ in range(4):
        await backend.elapse(TTL_MS // 2)
        assert isinstance(await answer(lambda done: store.keep_alive(lease_id, done)), KeptAlive)

    assert [entry.key for entry in await entries(store)] == ["a"]


async def test_a_revoked_lease_takes_its_keys_at_once(store: MetadataStore) -> None:
    lease_id = await lease(store, 60_000)
    await committed(store, Put("a", b"1", lease_id))

    assert isinstance(await answer(lambda done: store.revoke(lease_id, done)), LeaseLost)
    assert await entries(store) == []
    assert isinstance(await answer(lambda done: store.revoke(lease_id, done)), LeaseLost)


async def test_a_key_belongs_to_the_lease_it_was_last_put_under(store: MetadataStore) -> None:
    first, second = await lease(store, 60_000), await lease(store, 60_000)
    await committed(store, Put("moved", b"", first), Put("freed", b"", first))
    await committed(store, Put("moved", b"", second), Put("freed", b""))

    await answer(lambda done: store.revoke(first, done))
    assert [entry.key for entry in await entries(store)] == ["freed", "moved"]
    await answer(lambda done: store.revoke(second, done))
    assert [entry.key for entry in await entries(store)] == ["freed"]


async def test_a_closed_session_leaves_its_leases_to_expire(backend: Backend) -> None:
    """As a crash does: the others learn of it when the time is over, not before."""
    broker, other, seen = backend.session(), backend.session(), Seen()
    lease_id = await lease(broker)
    revision = await committed(broker, Put("sessions/1", b"", lease_id))
    broker.close()

    assert [entry.key for entry in await entries(other)] == ["sessions/1"]
    other.watch("sessions/", revision + 1, seen)
    await backend.elapse(TTL_MS)
    (event,) = await seen.first(1)
    assert event.deletes == ("sessions/1",)


# Watches.


async def test_a_watch_sees_every_transaction_once_and_in_order(backend: Backend) -> None:
    writer, watcher, seen = backend.session(), backend.session(), Seen()
    first = await committed(writer, Put("a", b"0"))
    watcher.watch("", first, seen)
    second = await committed(writer, Put("a", b"1"), Put("b", b"2"))
    third = await committed(writer, Delete("a"), Put("b", b"3"))

    events = await seen.first(3)
    assert events == [
        Changes(first, (Entry("a", b"0", first),), ()),
        Changes(second, (Entry("a", b"1", second), Entry("b", b"2", second)), ()),
        Changes(third, (Entry("b", b"3", third),), ("a",)),
    ]


async def test_a_watch_sees_its_prefix_only(backend: Backend) -> None:
    store, seen = backend.session(), Seen()
    store.watch("t/", (await read(store)).revision + 1, seen)
    await committed(store, Put("u", b""))
    await committed(store, Put("u", b""), Put("t/a", b""))

    (event,) = await seen.first(1)
    assert [entry.key for entry in event.puts] == ["t/a"]


async def test_a_watch_may_begin_with_transactions_to_come(store: MetadataStore) -> None:
    seen = Seen()
    revision = await committed(store, Put("a", b"1"))
    store.watch("", revision + 2, seen)
    await committed(store, Put("a", b"2"))
    third = await committed(store, Put("a", b"3"))

    assert (await seen.first(1))[0].revision == third


async def test_callback_that_writes_is_not_called_within_its_own_call(store: MetadataStore) -> None:
    seen, depth = Seen(), 0

    def deliver(event: Changes) -> None:
        nonlocal depth
        assert depth == 0, "called while still running"
        depth += 1
        if len(seen.events) < 3:
            store.commit([], [Put("a", b"again")], lambda result: None)
        seen(event)
        depth -= 1

    store.watch("", (await read(store)).revision + 1, deliver)
    await committed(store, Put("a", b"1"))

    revisions = [event.revision for event in await seen.first(4)]
    assert revisions == sorted(set(revisions))


async def test_a_cancelled_watch_says_nothing_more(backend: Backend) -> None:
    store, cancelled, other = backend.session(), Seen(), Seen()
    revision = (await read(store)).revision
    store.watch("", revision + 1, cancelled).cancel()
    store.watch("", revision + 1, other)
    await committed(store, Put("a", b""))

    await other.first(1)
    assert cancelled.events == []


async def test_a_watch_goes_on_where_it_was_after_an_interruption(backend: Backend) -> None:
    store, seen = backend.session(), Seen()
    store.watch("", (await read(store)).revision + 1, seen)
    first = await committed(store, Put("a", b"1"))
    await seen.first(1)

    await backend.interrupt()
    # Read first: a transaction sent into an interruption may be lost, a read is asked again.
    await read(store)
    second = await committed(store, Put("a", b"2"))

    assert [event.revision for event in await seen.first(2)] == [first, second]


async def test_what_is_too_long_ago_is_said_to_be(backend: Backend) -> None:
    store, seen = backend.session(), Seen()
    first = await committed(store, Put("a", b"1"))
    await committed(store, Put("a", b"2"))
    await backend.compact()

    store.watch("", first, seen)

    (event,) = await seen.first(1)
    assert isinstance(event, Compacted)


async def test_a_follower_begins_again_where_a_watch_cannot_go_on(backend: Backend) -> None:
    store, seen = backend.session(), Seen()
    await committed(store, Put("a", b"1"))
    follower = StoreWatcher(Forgetful(store), "a", seen, seen)
    follower.start()

    first, again = await seen.first(2)
    assert [type(first), type(again)] == [Snapshot, Snapshot]
    revision = await committed(store, Put("a", b"2"))
    assert (await seen.first(3))[2] == Changes(revision, (Entry("a", b"2", revision),), ())
    follower.stop()


class Forgetful:
    """A store whose first watch begins too late."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._watches = 0

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def watch(self, prefix, from_revision, deliver):
        self._watches += 1
        if self._watches == 1:
            deliver(Compacted(from_revision))
            return None
        return self._store.watch(prefix, from_revision, deliver)
