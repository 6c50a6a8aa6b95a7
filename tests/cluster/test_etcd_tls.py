"""The metadata store on an etcd that speaks TLS and wants a certificate; and those that do not fit each other."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.config.etcd import etcd_settings, refuse_etcd_properties
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.cluster.etcd import EtcdStore
from ottla.cluster.etcd_errors import refused_connection, unreadable
from ottla.cluster.store import Committed, KeptAlive, NotAdmitted, Put, Unavailable
from tests.cluster.etcd_guarded import GuardedEtcd, guarded_etcd
from tests.cluster.stores import Seen, answer, commit, committed, entries, lease, read
from tests.tls.certificates import Authority

TRUSTED = "ottla.metadata.etcd.ssl.truststore.location"
SHOWN = "ottla.metadata.etcd.ssl.keystore.location"
USER, PASSWORD = "ottla.metadata.etcd.user", "ottla.metadata.etcd.password"
HOST_CHECK = "ottla.metadata.etcd.ssl.endpoint.identification.algorithm"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedEtcd]:
    with guarded_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedEtcd]:
    """Its certificate names another host."""
    with guarded_etcd(tmp_path_factory.mktemp("elsewhere"), hosts=("etcd.example",)) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedEtcd]:
    with guarded_etcd(tmp_path_factory.mktemp("plain"), hosts=None) as etcd:
        yield etcd


@asynccontextmanager
async def closing(store: EtcdStore) -> AsyncIterator[EtcdStore]:
    try:
        yield store
    finally:
        store.close()
        await store.wait_closed()


async def refusal(store: EtcdStore) -> str:
    async with closing(store):
        result = await read(store)
    assert isinstance(result, NotAdmitted), result
    return result.reason


async def test_all_of_a_store_goes_over_tls_with_a_certificate(etcd: GuardedEtcd) -> None:
    async with closing(etcd.store()) as store:
        seen = Seen()
        store.watch("", (await read(store)).revision + 1, seen)
        first = await committed(store, Put("a", b"1"))
        lease_id = await lease(store)
        second = await committed(store, Put("b", b"2", lease_id))
        assert isinstance(await answer(lambda done: store.keep_alive(lease_id, done)), KeptAlive)
        await answer(lambda done: store.revoke(lease_id, done))

        assert [event.revision for event in (await seen.first(3))[:2]] == [first, second]
        assert [entry.key for entry in await entries(store)] == ["a"]


async def test_an_etcd_of_another_authority_is_refused(etcd: GuardedEtcd, tmp_path: Path) -> None:
    other = Authority("another CA").write(tmp_path / "other.pem")

    reason = await refusal(etcd.store({**etcd.certificates, TRUSTED: str(other)}))

    assert reason.startswith(f"etcd at 127.0.0.1:{etcd.server.port} cannot be used: no TLS: the certificate is not")
    assert "unable to get local issuer certificate" in reason


async def test_a_broker_without_a_certificate_is_refused(etcd: GuardedEtcd) -> None:
    reason = await refusal(etcd.store({TRUSTED: str(etcd.ca_file)}))

    assert reason.endswith(("no TLS: the other side wants a certificate", "does not accept the certificate"))


async def test_a_certificate_of_another_authority_is_refused(etcd: GuardedEtcd, tmp_path: Path) -> None:
    stranger = Authority("another CA").issue("broker").write(tmp_path / "stranger.pem")

    reason = await refusal(etcd.store({TRUSTED: str(etcd.ca_file), SHOWN: str(stranger)}))

    assert reason.endswith(("does not accept the certificate", "does not trust the authority of the certificate"))


async def test_the_name_in_the_certificate_is_checked(elsewhere: GuardedEtcd) -> None:
    assert "IP address mismatch" in await refusal(elsewhere.store())

    async with closing(elsewhere.store({**elsewhere.certificates, HOST_CHECK: ""})) as store:
        assert isinstance(await commit(store, Put("a", b"1")), Committed)


async def test_tls_with_an_etcd_that_has_none_is_said(plain: GuardedEtcd, etcd: GuardedEtcd) -> None:
    tls, _ = etcd_settings(ServerConfig(etcd.certificates), has_tls=True)
    async with closing(EtcdStore([("127.0.0.1", plain.server.port)], tls=tls, timeout_ms=500)) as store:
        result = await read(store)

    assert isinstance(result, Unavailable)
    assert result.reason.endswith("broken off the TLS handshake; if it speaks without TLS, etcd:// is for that")


async def test_no_tls_with_an_etcd_that_has_it_is_said(etcd: GuardedEtcd) -> None:
    async with closing(EtcdStore([("127.0.0.1", etcd.server.port)], timeout_ms=500)) as store:
        result = await read(store)

    assert isinstance(result, Unavailable)
    assert result.reason.endswith("the connection without an answer; if it speaks TLS, etcds:// is for that")


def test_a_listener_that_says_that_it_has_tls_is_believed() -> None:
    """As newer versions do, where the gateway has a listener of its own."""
    found = unreadable(b"Client sent an HTTP request to an HTTPS server.\n")
    assert refused_connection(found) == "it speaks TLS: etcds:// is for that"


def test_what_is_no_etcd_is_quoted_as_text() -> None:
    found = unreadable(b"only GET and HEAD are served here\n")
    assert str(found) == "its answer is none of etcd's: 'only GET and HEAD are served here'"


async def test_one_member_with_a_good_certificate_is_enough(etcd: GuardedEtcd, elsewhere: GuardedEtcd) -> None:
    tls, _ = etcd_settings(ServerConfig(etcd.certificates), has_tls=True)
    endpoints = [("127.0.0.1", elsewhere.server.port), ("127.0.0.1", etcd.server.port)]

    async with closing(EtcdStore(endpoints, tls=tls)) as store:
        assert not isinstance(await read(store), Unavailable)


@pytest.mark.parametrize(
    ("settings", "has_tls", "sentence"),
    [
        ({TRUSTED: "ca.pem"}, False, f"{TRUSTED}: --metadata etcd://… is without TLS; with it the URL is etcds://…"),
        ({TRUSTED: "/nowhere/ca.pem"}, True, f"{TRUSTED}: cannot read /nowhere/ca.pem: No such file or directory"),
        (
            {"ottla.metadata.etcd.ssl.keystore.key": "a secret"},
            True,
            "ottla.metadata.etcd.ssl.keystore.key: it and ssl.keystore.certificate.chain belong together: give both",
        ),
        ({USER: "u"}, True, f"{USER}: it needs {PASSWORD}"),
        (
            {PASSWORD: "p"},
            True,
            f"{PASSWORD}: it needs {USER}",
        ),
    ],
)
def test_what_cannot_be_is_a_sentence(settings: dict[str, str], has_tls: bool, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        etcd_settings(ServerConfig(settings), has_tls=has_tls)
    assert str(refused.value) == sentence


def test_properties_of_etcd_without_etcd_are_refused() -> None:
    refuse_etcd_properties(ServerConfig())
    with pytest.raises(ConfigError, match="it is for a broker with --metadata"):
        refuse_etcd_properties(ServerConfig({"ottla.metadata.etcd.user": "u"}))
