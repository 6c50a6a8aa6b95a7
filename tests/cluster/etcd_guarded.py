"""A real etcd that lets in only those with a certificate, or with a user and a password."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.broker.config.etcd import etcd_settings
from ottla.broker.config.server import ServerConfig
from ottla.cluster.etcd import EtcdStore
from ottla.cluster.etcd_gateway import EtcdLogin
from tests.cluster.etcd_server import EtcdServer
from tests.tls.certificates import Authority
from tests.waiting import wait_for

ROOT_PASSWORD = "of the root user"
USER, PASSWORD = "broker", "of the brokers' user"
NAMESPACE = "/ottla/"
STARTED_WITHIN_S = 30
_TOKEN_ENDED = '"deleted a simple token"'


class GuardedEtcd:
    """`hosts`: whom its certificate names; None: without TLS."""

    def __init__(
        self, directory: Path, *, hosts: tuple[str, ...] | None = ("127.0.0.1",), token_ttl_s: int | None = None
    ) -> None:
        self.directory = directory
        self.ca = Authority("CA of etcd")
        self.ca_file = self.ca.write(directory / "ca.pem")
        # Where users are enabled too, etcd's gateway takes no certificate with a common name.
        nameless = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "brokers")])
        self.client_file = self.ca.issue(nameless, hosts=()).write(directory / "client.pem")
        further: dict[str, str] = {}
        if token_ttl_s is not None:
            # From 3.5 on, etcd says only then that a token has ended.
            further = {"--auth-token-ttl": str(token_ttl_s), "--log-level": "debug"}
        if hosts is not None:
            certificate = self.ca.issue("etcd", hosts=hosts).write(directory / "etcd.pem")
            further |= {
                "--cert-file": str(certificate),
                "--key-file": str(certificate),
                "--trusted-ca-file": str(self.ca_file),
                "--client-cert-auth": "true",
            }
        self.server = EtcdServer(directory, further=further)

    @property
    def url(self) -> str:
        """As `--metadata` takes it."""
        return f"{'etcds' if self.server.scheme == 'https' else 'etcd'}://127.0.0.1:{self.server.port}"

    @property
    def certificates(self) -> dict[str, str]:
        """Server properties."""
        if self.server.scheme == "http":
            return {}
        return {
            "ottla.metadata.etcd.ssl.truststore.location": str(self.ca_file),
            "ottla.metadata.etcd.ssl.keystore.location": str(self.client_file),
        }

    def start(self) -> None:
        self.server.start()
        wait_for(lambda: self.ask("maintenance/status") is not None, STARTED_WITHIN_S, "etcd does not answer")

    def store(self, settings: dict[str, str] | None = None, *, timeout_ms: int = 5000) -> EtcdStore:
        """As a broker with these server properties has it; by default it shows its certificate and does not log in."""
        has_tls = self.server.scheme == "https"
        given = self.certificates if settings is None else settings
        tls, login = etcd_settings(ServerConfig(given), has_tls=has_tls)
        endpoints = [("127.0.0.1", self.server.port)]
        return EtcdStore(endpoints, tls=tls, login=None if login is None else EtcdLogin(*login), timeout_ms=timeout_ms)

    # Users.

    def enable_logins(self) -> None:
        """From now on only `root`, and USER under the namespace, may do anything."""
        self.add_user("root", ROOT_PASSWORD)
        self.must("auth/role/add", name="root")
        self.must("auth/user/grant", user="root", role="root")
        self.must("auth/role/add", name="ottla")
        begin, end = (base64.b64encode(key.encode()).decode() for key in (NAMESPACE, "/ottla0"))
        permission = {"permType": "READWRITE", "key": begin, "range_end": end}
        self.must("auth/role/grant", name="ottla", perm=permission)
        self.add_user(USER, PASSWORD)
        self.must("auth/user/grant", user=USER, role="ottla")
        self.must("auth/enable")

    def add_user(self, name: str, password: str) -> None:
        self.must("auth/user/add", name=name, password=password, token=self._root_token())

    def change_password(self, name: str, password: str) -> None:
        self.must("auth/user/changepw", name=name, password=password, token=self._root_token())

    def ended_tokens(self) -> list[str]:
        """Of USER, by the log of etcd, which looks for them once a second: those that it knows no more. With
        `token_ttl_s`; asking etcd with a token instead would prolong it."""
        lines = (json.loads(line) for line in self.server.log_path.read_text().splitlines() if _TOKEN_ENDED in line)
        return [line["token"] for line in lines if line["user-name"] == USER]

    def _root_token(self) -> str:
        answer = self.ask("auth/authenticate", name="root", password=ROOT_PASSWORD)
        return "" if answer is None else answer["token"]

    def must(self, path: str, token: str = "", **fields: Any) -> dict[str, Any]:
        answer = self.ask(path, token, **fields)
        assert answer is not None, path
        return answer

    def ask(self, path: str, token: str = "", **fields: Any) -> dict[str, Any] | None:
        """None: it has refused, or does not answer."""
        headers = {"Authorization": token} if token else {}
        url = f"{self.server.scheme}://127.0.0.1:{self.server.port}/v3/{path}"
        request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._context()) as response:
                return dict(json.load(response))
        except OSError:
            return None

    def _context(self) -> ssl.SSLContext | None:
        if self.server.scheme == "http":
            return None
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.check_hostname = False
        context.load_cert_chain(self.client_file)
        return context


@contextmanager
def guarded_etcd(
    directory: Path, *, hosts: tuple[str, ...] | None = ("127.0.0.1",), token_ttl_s: int | None = None
) -> Iterator[GuardedEtcd]:
    etcd = GuardedEtcd(directory, hosts=hosts, token_ttl_s=token_ttl_s)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.server.kill()
