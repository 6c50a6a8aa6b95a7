"""The directory of `ottla serve --secure`: an authority, the brokers' certificate, passwords, and files for clients.

    ca.pem                  the authority's certificate, which clients trust
    ca-key.pem              its private key
    broker.pem              key and certificate of all brokers; made where it is missing, or will not do any longer
    admin.password          of the user for clients, who may do everything
    broker.password         of the user as whom brokers log in to each other
    client.properties       for Java's clients and tools, and for `--command-config`; made where it is missing
    librdkafka.properties   for librdkafka, with it confluent-kafka, and for kcat

Only its owner can open the directory, and read each file.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.broker.config.security import why_not_secret
from ottla.broker.runtime import StartError
from ottla.cli.operations.development_ca import BrokenCa, DevelopmentCa
from ottla.security.client import Secret
from ottla.storage.files import OsFileSystem, reason_of, write_atomically

CA, CA_KEY, BROKER = "ca.pem", "ca-key.pem", "broker.pem"
ADMIN_USER, BROKER_USER = "admin", "broker"
CLIENT, LIBRDKAFKA = "client.properties", "librdkafka.properties"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD_BYTES = 24
# Passwords stand in quotes in login modules, and at the end of lines.
_PASSWORD = re.compile(r"[!#-\[\]-~]+")


def password_name(user: str) -> str:
    return f"{user}.password"


# What the first start makes; without all of them there is no second one.
_KEPT = (CA_KEY, CA, password_name(ADMIN_USER), password_name(BROKER_USER))
_ALL = (*_KEPT, BROKER, CLIENT, LIBRDKAFKA)


class SecureDirectory:
    """Every StartError is one sentence that names the file, and shows nothing of what is in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = OsFileSystem()
        self._ca: DevelopmentCa
        self.passwords: Mapping[str, Secret] = {}
        """By user: ADMIN_USER, BROKER_USER."""

    def file(self, name: str) -> Path:
        return self.path / name

    def open(self, hosts: Iterable[str]) -> None:
        """Makes it where there is none, and a certificate that names `hosts`. Raises StartError."""
        try:
            self._open(list(dict.fromkeys(hosts)))
        except OSError as error:
            raise StartError(f"cannot use {self.path}: {reason_of(error)}") from None

    def write_client_files(self, bootstrap: str) -> None:
        """What is there keeps what its reader has added to it; where the brokers are is kept up to date.
        Raises StartError."""
        path, where = self.path, {"bootstrap.servers": bootstrap, "ssl.ca.location": str(self.file(CA))}
        try:
            for name, made in ((CLIENT, self._client_properties), (LIBRDKAFKA, self._librdkafka_properties)):
                path = self.file(name)
                text = path.read_text(encoding="utf-8") if path.exists() else ""
                wanted = with_values(text, where) if text else made(where)
                if wanted != text:
                    self._write(name, wanted.encode())
        except OSError as error:
            raise StartError(f"cannot write {self.path}: {reason_of(error)}") from None
        except UnicodeDecodeError:
            raise StartError(f"{path} is not UTF-8 text; delete it, and it is made again") from None

    def _open(self, hosts: list[str]) -> None:
        if not self.path.exists():
            self._files.make_directory(self.path)
        if not self.path.is_dir():
            raise StartError(f"{self.path} is no directory")
        self._refuse_open(self.path)
        names = {each.name for each in self.path.iterdir()}
        if not names:
            self._make()
        elif not names.intersection(_ALL):
            raise StartError(f"{self.path} is not empty, and holds no {CA}: --secure needs a directory of its own")
        missing = [name for name in _KEPT if names and name not in names]
        if missing:
            raise StartError(
                f"{self.path} has lost {missing[0]}: put it back, or delete the directory, and the next start makes "
                "another one"
            )
        for name in (each for each in _ALL if each != CA and self.file(each).exists()):
            self._refuse_open(self.file(name))
        self._read(hosts)

    def _make(self) -> None:
        ca = DevelopmentCa.make()
        self._write(CA_KEY, ca.key_pem)
        for user in (ADMIN_USER, BROKER_USER):
            self._write(password_name(user), f"{secrets.token_urlsafe(PASSWORD_BYTES)}\n".encode())
        self._write(CA, ca.pem)

    def _read(self, hosts: list[str]) -> None:
        self.passwords = {user: self._password(user) for user in (ADMIN_USER, BROKER_USER)}
        path = self.file(CA)
        try:
            self._ca = DevelopmentCa.read(self.file(CA_KEY).read_bytes(), path.read_bytes())
        except BrokenCa as error:
            raise StartError(f"{path}, with {CA_KEY}, {error}; delete the directory, and it is made again") from None
        path = self.file(BROKER)
        try:
            if not path.exists() or not self._ca.is_good(path.read_bytes(), hosts):
                self._write(BROKER, self._ca.issue(hosts))
        except BrokenCa as error:
            raise StartError(f"{path} {error}; delete it, and it is made again") from None
        except ValueError:
            raise StartError(f"no certificate can name all of {', '.join(hosts)}") from None

    def _password(self, user: str) -> Secret:
        path = self.file(password_name(user))
        text = path.read_bytes().removesuffix(b"\n").decode(errors="replace")
        if not _PASSWORD.fullmatch(text):
            raise StartError(f"{path} is not one line of ASCII signs, without blanks, quotes and backslashes")
        return Secret(text)

    def _refuse_open(self, path: Path) -> None:
        why = why_not_secret(path)
        if why is not None:
            raise StartError(why)

    def _write(self, name: str, content: bytes) -> None:
        write_atomically(self._files, self.file(name), content)

    def _client_properties(self, where: Mapping[str, str]) -> str:
        """The authority stands in it, so that the file can be taken elsewhere."""
        password = self.passwords[ADMIN_USER].reveal()
        certificate = "\\n\\\n".join(self._ca.pem.decode().splitlines())
        return (
            f"bootstrap.servers={where['bootstrap.servers']}\n"
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={SCRAM_MODULE} required username="{ADMIN_USER}" password="{password}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.certificates={certificate}\n"
        )

    def _librdkafka_properties(self, where: Mapping[str, str]) -> str:
        """Each line a name and a value, nothing else: clients in Python read it with one `split`."""
        return (
            f"bootstrap.servers={where['bootstrap.servers']}\n"
            "security.protocol=SASL_SSL\n"
            f"ssl.ca.location={where['ssl.ca.location']}\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username={ADMIN_USER}\n"
            f"sasl.password={self.passwords[ADMIN_USER].reveal()}\n"
        )


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Lines `NAME=...` of these names with these values; all others as they are."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        name = line.partition("=")[0].strip()
        lines.append(f"{name}={values[name]}\n" if name in values else line)
    return "".join(lines)
