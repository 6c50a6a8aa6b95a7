"""`ottla serve --metadata etcds://...`: brokers that show a certificate to etcd and log in, and one sentence if not."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from tests.cluster.etcd_guarded import PASSWORD, USER, GuardedEtcd, guarded_etcd
from tests.served import ServedBroker
from tests.waiting import wait_for

TOKEN_TTL_S, TOKEN_ENDS_WITHIN_S = 2, 30
SECRET = "ottla.metadata.etcd.password"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedEtcd]:
    with guarded_etcd(tmp_path_factory.mktemp("etcd"), token_ttl_s=TOKEN_TTL_S) as etcd:
        etcd.enable_logins()
        (etcd.directory / "password").write_text(PASSWORD)
        (etcd.directory / "password").chmod(0o600)
        yield etcd


def settings(etcd: GuardedEtcd, **altered: str) -> dict[str, str]:
    given = {**etcd.certificates, "ottla.metadata.etcd.user": USER, SECRET: f"@{etcd.directory / 'password'}"}
    return {**given, **{f"ottla.metadata.etcd.{name}": value for name, value in altered.items()}}


def said(etcd: GuardedEtcd, data_dir: Path, given: dict[str, str], url: str | None = None) -> str:
    """The only line on standard error of a broker that does not start."""
    options = ["--metadata", url or etcd.url, "--node-id", "1", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    # At once, and not after initial.broker.registration.timeout.ms, which is a minute.
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "serve", *options, *words], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_brokers_work_while_tokens_end_and_etcd_is_restarted(etcd: GuardedEtcd, tmp_path: Path) -> None:
    given = {**settings(etcd), "broker.session.timeout.ms": "3000"}
    arguments = ["--metadata", etcd.url, "--node-id", "1"]
    with ServedBroker(tmp_path / "data", given, arguments=arguments) as broker:
        command = [sys.executable, "-m", "ottla", "topics"]
        where = ["--bootstrap", broker.bootstrap]
        subprocess.run([*command, "create", "one", *where], check=True, timeout=60)
        ended = len(etcd.ended_tokens())
        wait_for(lambda: len(etcd.ended_tokens()) > ended, TOKEN_ENDS_WITHIN_S, "etcd has not ended the broker's token")
        subprocess.run([*command, "create", "two", *where], check=True, timeout=60)
        etcd.server.kill()
        etcd.start()
        subprocess.run([*command, "create", "three", *where], check=True, timeout=60)
        assert "the session of this broker has ended" not in broker.stderr
        shown = described(broker.bootstrap)
        process = Path(f"/proc/{broker.pid}/cmdline").read_text()
        broker.restart()
        listed = subprocess.run([*command, "list", *where], check=True, timeout=60, capture_output=True, text=True)

    assert {"one", "two", "three"} <= set(listed.stdout.split())
    assert (shown.value, shown.is_sensitive) == (None, True)
    assert PASSWORD not in process + broker.stderr


def described(bootstrap: str) -> ConfigEntry:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    client = AdminClient({"bootstrap.servers": bootstrap})
    entries: dict[str, ConfigEntry] = client.describe_configs([resource])[resource].result(20)
    return entries[SECRET]


def test_a_wrong_password_is_one_sentence_at_once(etcd: GuardedEtcd, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("a wrong one")
    wrong.chmod(0o600)

    line = said(etcd, tmp_path / "data", settings(etcd, password=f"@{wrong}"))

    assert line == (
        f"ottla: the metadata store cannot be used: etcd at 127.0.0.1:{etcd.server.port} does not let user {USER} in: "
        "unknown, or with another password"
    )


def test_a_wrong_authority_is_one_sentence_at_once(etcd: GuardedEtcd, tmp_path: Path) -> None:
    given = settings(etcd, **{"ssl.truststore.location": str(etcd.client_file)})

    line = said(etcd, tmp_path / "data", given)

    assert line.startswith(f"ottla: the metadata store cannot be used: etcd at 127.0.0.1:{etcd.server.port} cannot be")
    assert "the certificate is not accepted" in line


def test_certificates_without_tls_are_one_sentence(etcd: GuardedEtcd, tmp_path: Path) -> None:
    line = said(etcd, tmp_path / "data", settings(etcd), url=etcd.url.replace("etcds", "etcd"))

    assert line == (
        "ottla: ottla.metadata.etcd.ssl.truststore.location: --metadata etcd://… is without TLS; with it the URL is "
        "etcds://…"
    )
