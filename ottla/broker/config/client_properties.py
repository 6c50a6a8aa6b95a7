"""A file with Kafka's client properties, as Kafka's own tools take it by `--command-config`.

What decides which brokers are asked, who logs in, and how, is understood as in Kafka, or refused with a sentence. What
is meant for a Java client alone is passed over.
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.broker.config.options import ConfigError
from ottla.broker.config.properties import parse_properties
from ottla.broker.config.server_network import PROTOCOLS, WITH_SASL, WITH_TLS
from ottla.protocol.address import Address, parse_addresses
from ottla.security.authentication import PLAIN
from ottla.security.client import CLIENT_MECHANISMS, LoginCredentials, Secret
from ottla.security.jaas import JaasError, LoginModule, parse_jaas

FILE_VARIABLE = "OTTLA_COMMAND_CONFIG"
"""Of the environment: names a file where no option does."""
PROTOCOL, MECHANISM, JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
BOOTSTRAP = "bootstrap.servers"
# What Kafka's clients take where the property is missing.
KAFKA_MECHANISM = "GSSAPI"
# Of other mechanisms, and of how a Java client comes by what they need.
PASSED_OVER = ("sasl.kerberos.", "sasl.oauthbearer.", "sasl.login.refresh.", "sasl.login.retry.", "security.providers")


class ClientProperties:
    """Every ValueError is a sentence that names the property, and never has a value that may be a password."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    @classmethod
    def read(cls, path: Path) -> "ClientProperties":
        """Raises ValueError."""
        try:
            return cls(parse_properties(path.read_text()))
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
        except (UnicodeDecodeError, ConfigError):
            raise ValueError(f"{path} is not a file of properties in UTF-8") from None

    @property
    def bootstrap(self) -> list[Address] | None:
        """Raises ValueError."""
        text = self._values.get(BOOTSTRAP)
        if text is None:
            return None
        try:
            return parse_addresses(text)
        except ValueError as error:
            raise ValueError(f"{BOOTSTRAP}: {error}") from None

    @property
    def protocol(self) -> str | None:
        """One of Kafka's; None if the file does not say. Raises ValueError."""
        text = self._values.get(PROTOCOL)
        if text is None:
            return None
        name = text.strip().upper()
        if name not in PROTOCOLS:
            raise ValueError(f"{PROTOCOL} is one of {', '.join(PROTOCOLS)}, not {text!r}")
        return name

    @property
    def has_tls(self) -> bool | None:
        """None if the file does not say. Raises ValueError."""
        return None if self.protocol is None else self.protocol in WITH_TLS

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def of_security(self) -> dict[str, str]:
        """Those that say as whom a client comes, and by which protocol."""
        return {name: text for name, text in self._values.items() if name.startswith(("security.", "sasl.", "ssl."))}

    @property
    def mechanism(self) -> str | None:
        """One of CLIENT_MECHANISMS; None if the file does not say. Raises ValueError."""
        text = self._values.get(MECHANISM)
        if text is None:
            return None
        name = text.strip()
        if name not in CLIENT_MECHANISMS:
            raise ValueError(f"{MECHANISM}={name} is not supported, but {', '.join(CLIENT_MECHANISMS)} are")
        return name

    @property
    def login(self) -> LoginCredentials | None:
        """None where the protocol has none, as by default. Raises ValueError."""
        if self.protocol not in WITH_SASL:
            return None
        mechanism = self.mechanism
        if mechanism is None:
            names = ", ".join(CLIENT_MECHANISMS)
            raise ValueError(f"{MECHANISM} is missing: Kafka's default {KAFKA_MECHANISM} is not supported, but {names}")
        text = self._values.get(JAAS)
        if text is None:
            raise ValueError(f"{PROTOCOL}={self.protocol} needs {JAAS}, or --user")
        return _login_of(mechanism, text)

    @property
    def without_meaning(self) -> list[str]:
        """Names that look as if they decided who logs in, and do not here: a slip, or a class of a Java client."""
        known = (PROTOCOL, MECHANISM, JAAS)
        return [
            name
            for name in self._values
            if name.startswith(("sasl.", "security.")) and name not in known and not name.startswith(PASSED_OVER)
        ]


def _login_of(mechanism: str, jaas: str) -> LoginCredentials:
    try:
        entry = parse_jaas(jaas)
    except JaasError as error:
        raise ValueError(f"{JAAS}: {error}") from None
    module = LoginModule.PLAIN if mechanism == PLAIN else LoginModule.SCRAM
    if entry.module is not module:
        raise ValueError(f"{MECHANISM}={mechanism} needs the login module {module.value}, not {entry.module.value}")
    for option in ("username", "password"):
        if not entry.options.get(option):
            raise ValueError(f"{JAAS} has no {option}")
    return LoginCredentials(mechanism, entry.options["username"], Secret(entry.options["password"]))
