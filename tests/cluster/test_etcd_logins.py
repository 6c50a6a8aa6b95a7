"""The metadata store on an etcd that lets in users: passwords, tokens that end, and what is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.cluster.etcd import EtcdStore
from ottla.cluster.etcd_gateway import EtcdLogin
from ottla.cluster.store import Committed, Granted, KeptAlive, NotAdmitted, Put, Snapshot, Unavailable
from ottla.security.client import Secret
from tests.cluster.etcd_guarded import PASSWORD, USER, GuardedEtcd, guarded_etcd
from tests.cluster.stores import Seen, answer, commit, committed, lease, read
from tests.cluster.test_etcd_errors import DONE, Gateway, error
from tests.waiting import wait_for

TOKEN_TTL_S, TOKEN_ENDS_WITHIN_S = 2, 30
LOGIN = {"ottla.metadata.etcd.user": USER, "ottla.metadata.etcd.password": PASSWORD}
TOKEN = 200, {"token": "first.1"}
INVALID = 401, error("etcdserver: invalid auth token", 16)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedEtcd]:
    """With certificates and logins, and tokens that end soon."""
    with guarded_etcd(tmp_path_factory.mktemp("etcd"), token_ttl_s=TOKEN_TTL_S) as etcd:
        etcd.enable_logins()
        yield etcd


@asynccontextmanager
async def store_of(etcd: GuardedEtcd, **altered: str) -> AsyncIterator[EtcdStore]:
    changed = {f"ottla.metadata.etcd.{name}": value for name, value in altered.items()}
    store = etcd.store({**etcd.certificates, **LOGIN, **changed}, timeout_ms=20_000)
    try:
        yield store
    finally:
        store.close()
        await store.wait_closed()


@asynccontextmanager
async def store_on(gateway: Gateway) -> AsyncIterator[EtcdStore]:
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    endpoints = [("127.0.0.1", server.sockets[0].getsockname()[1])]
    store = EtcdStore(endpoints, login=EtcdLogin("broker", Secret("secret")))
    try:
        yield store
    finally:
        store.close()
        await store.wait_closed()
        server.close()


async def refusal(store: EtcdStore) -> str:
    result = await read(store)
    assert isinstance(result, NotAdmitted), result
    return result.reason


async def token_ended(etcd: GuardedEtcd, store: EtcdStore) -> None:
    """That of the store, which etcd knows no more then."""
    token = store.gateway._token
    await asyncio.to_thread(wait_for, lambda: token in etcd.ended_tokens(), TOKEN_ENDS_WITHIN_S, "it has not ended")


async def test_a_token_that_has_ended_is_renewed_everywhere(etcd: GuardedEtcd) -> None:
    async with store_of(etcd) as store:
        seen = Seen()
        store.watch("", (await read(store)).revision + 1, seen)
        lease_id = await lease(store, ttl_ms=60_000)
        revisions = [await committed(store, Put("a", b"1"))]
        for ask in (
            lambda: commit(store, Put("a", b"2")),
            lambda: read(store),
            lambda: answer(lambda done: store.grant(2000, done)),
            lambda: answer(lambda done: store.keep_alive(lease_id, done)),
        ):
            await token_ended(etcd, store)
            result = await ask()
            assert isinstance(result, (Committed, Snapshot, Granted, KeptAlive)), result
            if isinstance(result, Committed):
                revisions.append(result.revision)

        assert [event.revision for event in await seen.first(2)] == revisions


async def test_a_watch_begins_with_a_token_of_its_own(etcd: GuardedEtcd) -> None:
    async with store_of(etcd) as store:
        revision = await committed(store, Put("b", b"1"))
        await token_ended(etcd, store)
        seen = Seen()
        store.watch("b", revision, seen)

        assert [event.revision for event in await seen.first(1)] == [revision]


async def test_an_etcd_that_was_restarted_knows_no_token(tmp_path: Path) -> None:
    with guarded_etcd(tmp_path) as etcd:
        etcd.enable_logins()
        async with store_of(etcd) as store:
            seen = Seen()
            store.watch("", (await read(store)).revision + 1, seen)
            first = await committed(store, Put("a", b"1"))
            etcd.server.kill()
            etcd.server.start()
            await read(store)
            second = await committed(store, Put("a", b"2"))

            assert [event.revision for event in await seen.first(2)] == [first, second]


async def test_a_wrong_password_is_refused(etcd: GuardedEtcd) -> None:
    for altered in ({"password": "another"}, {"user": "another"}):
        async with store_of(etcd, **altered) as store:
            reason = await refusal(store)
        user = altered.get("user", USER)
        assert reason == (
            f"etcd at 127.0.0.1:{etcd.server.port} does not let user {user} in: unknown, or with another password"
        )


async def test_an_etcd_with_logins_refuses_a_broker_without(etcd: GuardedEtcd) -> None:
    store = etcd.store()
    assert (await refusal(store)).endswith(
        "wants a login: set ottla.metadata.etcd.user and ottla.metadata.etcd.password"
    )
    store.close()
    await store.wait_closed()


async def test_a_user_without_a_role_is_refused(etcd: GuardedEtcd) -> None:
    etcd.add_user("guest", "guest")
    async with store_of(etcd, user="guest", password="guest") as store:
        assert "denies user guest what a broker does: a role with readwrite is needed" in await refusal(store)


async def test_a_changed_password_counts_when_it_is_right_again(tmp_path: Path) -> None:
    """The broker that serves goes on asking."""
    with guarded_etcd(tmp_path, hosts=None) as etcd:
        etcd.enable_logins()
        async with store_of(etcd) as store:
            await committed(store, Put("a", b"1"))
            etcd.change_password(USER, "another")
            assert "does not let user broker in" in await refusal(store)
            etcd.change_password(USER, PASSWORD)
            await committed(store, Put("a", b"2"))


async def test_logins_can_be_enabled_while_brokers_run(tmp_path: Path) -> None:
    """They are given their user first."""
    with guarded_etcd(tmp_path, hosts=None) as etcd:
        async with store_of(etcd) as store:
            seen = Seen()
            store.watch("", (await read(store)).revision + 1, seen)
            first = await committed(store, Put("a", b"1"))
            etcd.enable_logins()
            second = await committed(store, Put("a", b"2"))

            assert [event.revision for event in await seen.first(2)] == [first, second]


async def test_a_transaction_with_an_ended_token_is_repeated() -> None:
    gateway = Gateway(TOKEN, INVALID, (200, {"token": "second.2"}), DONE)
    async with store_on(gateway) as store:
        assert await commit(store, Put("a", b"")) == Committed(7)


async def test_no_end_of_refused_tokens_is_no_answer() -> None:
    gateway = Gateway(*[TOKEN, INVALID] * 40)
    async with store_on(gateway) as store:
        store.gateway._timeout_s = 0.5
        store._timeout_s = 0.5
        result = await commit(store, Put("a", b""))

    assert isinstance(result, Unavailable)
    assert result.reason.endswith("did not answer within 0.5 s: etcd: etcdserver: invalid auth token")


class SilentInTheEnd(Gateway):
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.asked < len(self.answers):
            await super().serve(reader, writer)
            return
        await reader.read()
        writer.close()


async def test_last_try_that_is_cut_short_does_not_hide_the_reason() -> None:
    gateway = SilentInTheEnd(*[TOKEN, INVALID] * 2)
    async with store_on(gateway) as store:
        store.gateway._timeout_s = store._timeout_s = 0.5
        result = await commit(store, Put("a", b""))

    assert isinstance(result, Unavailable)
    assert result.reason.endswith("did not answer within 0.5 s: etcd: etcdserver: invalid auth token")


async def test_many_calls_at_once_log_in_once() -> None:
    granted = 200, {"ID": "5", "TTL": "2"}
    gateway = Gateway(TOKEN, *[granted] * 10)
    async with store_on(gateway) as store:
        results = await asyncio.gather(*(answer(lambda done: store.grant(2000, done)) for _ in range(10)))

    assert results == [Granted(5, 2000)] * 10
    assert gateway.asked == 11


def test_a_login_does_not_show_its_password() -> None:
    assert "secret" not in repr(EtcdLogin("broker", Secret("secret")))


async def test_users_and_a_certificate_with_a_name_are_refused(etcd: GuardedEtcd, tmp_path: Path) -> None:
    """By etcd: what comes through its gateway is never known by its certificate."""
    named = etcd.ca.issue("broker").write(tmp_path / "named.pem")
    async with store_of(etcd, **{"ssl.keystore.location": str(named)}) as store:
        assert (await refusal(store)).endswith("no certificate that has a common name (CN)")
