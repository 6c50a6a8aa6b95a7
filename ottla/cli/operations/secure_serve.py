"""`ottla serve --secure DIR`: TLS, a login and an authorizer for a broker in development, in one step.

All brokers of the process have one listener, SASL_SSL, on which clients log in by SCRAM-SHA-512. The users are written
into the data directory before the brokers start; from then on they are users like others, and what an administrator
does with them stays.
"""

import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import SASL_SSL
from ottla.broker.config.server_security import JAAS_CONFIG, STANDARD_AUTHORIZER
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import StartError
from ottla.broker.server.network import address_for_clients
from ottla.cli.failures import ClientError
from ottla.cli.operations.first_user import scram_credentials_in, store_users
from ottla.cli.operations.secure_directory import (
    ADMIN_USER,
    BROKER,
    BROKER_USER,
    CA,
    CLIENT,
    LIBRDKAFKA,
    SCRAM_MODULE,
    SecureDirectory,
    password_name,
)
from ottla.cli.operations.users import salted_upsertion
from ottla.security.scram_credential import ITERATIONS_MIN, ScramCredential, ScramHash, credential_of, salted_password

SCRAM = ScramHash.SHA_512
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_LISTENERS = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
)
_OF_LISTENER = (
    "sasl.enabled.mechanisms",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)
_OTHERS = ("sasl.mechanism.inter.broker.protocol", "authorizer.class.name", "super.users")


def refuse_properties(config: ServerConfig) -> None:
    """Raises ConfigError for those that say otherwise what --secure says."""
    for name in _LISTENERS:
        if config.is_set(name):
            raise ConfigError(f"{name}: with --secure, --listen and --advertise say where the one listener is")
    names = [name for name in (*_OF_LISTENER, *_OTHERS) if config.is_set(name)]
    names += [each.name for each in config.listener_properties if each.own in (*_OF_LISTENER, JAAS_CONFIG)]
    if names:
        raise ConfigError(f"{names[0]}: --secure sets it; give one of them")


class SecureServe:
    listener_name = SASL_SSL
    """Kafka's map of protocols has it for listeners of that name."""

    def __init__(self, directory: SecureDirectory) -> None:
        self._directory = directory
        self._notes: list[str] = []

    @classmethod
    def open(cls, path: Path, data_dir: Path | None, *, listen: str | None, advertise: str | None) -> "SecureServe":
        """`listen` and `advertise` are hosts. Raises StartError."""
        path = path.absolute()
        if not str(path).isprintable():
            raise StartError("--secure names a directory with signs that files of properties cannot have")
        if data_dir is not None and path.resolve().is_relative_to(data_dir.resolve()):
            raise StartError(f"--secure {path} is in the data directory, which holds nothing but data")
        directory = SecureDirectory(path)
        directory.open(_hosts(advertise or address_for_clients("127.0.0.1" if listen is None else listen)))
        return cls(directory)

    @property
    def path(self) -> Path:
        return self._directory.path

    @property
    def settings(self) -> tuple[str, ...]:
        """KEY=VALUE. One is a secret."""
        password = self._directory.passwords[BROKER_USER].reveal()
        login = f'{SCRAM_MODULE} required username="{BROKER_USER}" password="{password}";'
        own = f"listener.name.{self.listener_name.lower()}."
        return (
            f"{own}ssl.keystore.location={self._directory.file(BROKER)}",
            f"{own}ssl.truststore.location={self._directory.file(CA)}",
            f"{own}sasl.enabled.mechanisms={SCRAM.mechanism}",
            f"{own}{SCRAM.mechanism.lower()}.{JAAS_CONFIG}={login}",
            f"sasl.mechanism.inter.broker.protocol={SCRAM.mechanism}",
            f"authorizer.class.name={STANDARD_AUTHORIZER}",
            f"super.users=User:{ADMIN_USER};User:{BROKER_USER}",
        )

    def store_users(self, data_dir: Path) -> None:
        """Writes both users where the brokers' one is missing, and an administrator's of this name stays. Raises
        StartError where brokers could not log in to each other."""
        try:
            found = scram_credentials_in(data_dir)
            if (SCRAM, BROKER_USER) not in found:
                new = [user for user in (BROKER_USER, ADMIN_USER) if (SCRAM, user) not in found]
                passwords = self._directory.passwords
                wanted = [salted_upsertion(user, SCRAM, ITERATIONS_MIN, passwords[user]) for user in new]
                store_users(data_dir, wanted, replaces=False)
            elif not self._fits(BROKER_USER, found[SCRAM, BROKER_USER]):
                raise StartError(
                    f"user {BROKER_USER} in {data_dir} has another password than the file for it; "
                    f"{self._replacement(BROKER_USER, data_dir)}"
                )
        except ClientError as error:
            raise StartError(str(error)) from None
        admin = found.get((SCRAM, ADMIN_USER))
        if found and not (admin is not None and self._fits(ADMIN_USER, admin)):
            self._notes.append(
                f"user {ADMIN_USER} has another password than the files say, or none; with the broker stopped, "
                f"{self._replacement(ADMIN_USER, data_dir)}"
            )

    def ready(self, bootstrap: str, log: LazyLog) -> Iterator[str]:
        """Writes the clients' files, warns, and says how clients connect: lines without a secret. Raises StartError."""
        self._directory.write_client_files(bootstrap)
        log.warning("keys and users of --secure are for development", directory=str(self.path))
        client, ca, librdkafka, password = (
            shlex.quote(str(self._directory.file(name))) for name in (CLIENT, CA, LIBRDKAFKA, password_name(ADMIN_USER))
        )
        first = bootstrap.partition(",")[0]
        yield f"for development only: who can read {self.path} can do everything; clients log in as {ADMIN_USER}:"
        yield f"  ottla topics list --command-config {client}"
        yield f"  kafka-topics.sh --list --bootstrap-server {first} --command-config {client}"
        yield f"  confluent-kafka, kcat -F, all with librdkafka 2.6.1 or newer: {librdkafka}"
        yield f"  others: SASL_SSL, {SCRAM.mechanism}, authority in {ca}, password in {password}"
        yield from self._notes

    def _fits(self, user: str, credential: ScramCredential) -> bool:
        password = self._directory.passwords[user].reveal().encode()
        salted = salted_password(SCRAM, password, credential.salt, credential.iterations)
        return credential_of(SCRAM, credential.salt, salted, credential.iterations) == credential

    def _replacement(self, user: str, data_dir: Path) -> str:
        file = shlex.quote(str(self._directory.file(password_name(user))))
        return (
            f"`ottla users create {user} --replace --data-dir {shlex.quote(str(data_dir))} --new-password-file {file}` "
            "gives it that one"
        )


def _hosts(advertised: str) -> list[str]:
    """What a certificate of brokers names: what clients of this machine say, and what clients elsewhere get."""
    own = socket.gethostname()
    return ["localhost", "127.0.0.1", "::1", *([own] if _HOST.fullmatch(own) else []), advertised]
