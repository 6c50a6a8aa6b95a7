"""What the properties of TLS say together, for a listener or a client: keys, certificates, versions, checks.

Files are read and looked at here. What cannot work is refused with a sentence that names the property and shows nothing
of a secret.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, cast

from ottla.broker.config.definitions import SERVER_OPTIONS
from ottla.broker.config.options import ConfigError, Option
from ottla.broker.config.security import why_not_secret
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_tls import LISTENER_TLS_OPTIONS, TLS_1_2, VERSIONS, TlsOptions
from ottla.security.client import Secret
from ottla.security.pem import PemError, PemTexts, parse_pem

KEYSTORE_LOCATION: Final = TlsOptions.ssl_keystore_location.name
KEYSTORE_KEY: Final = TlsOptions.ssl_keystore_key.name
KEYSTORE_CHAIN: Final = TlsOptions.ssl_keystore_certificate_chain.name
KEY_PASSWORD: Final = TlsOptions.ssl_key_password.name
TRUSTSTORE_LOCATION: Final = TlsOptions.ssl_truststore_location.name
TRUSTSTORE_CERTIFICATES: Final = TlsOptions.ssl_truststore_certificates.name
ENABLED_PROTOCOLS: Final = TlsOptions.ssl_enabled_protocols.name
PROTOCOL: Final = TlsOptions.ssl_protocol.name
CIPHER_SUITES: Final = TlsOptions.ssl_cipher_suites.name
HOST_CHECK: Final = TlsOptions.ssl_endpoint_identification_algorithm.name
MAPPING_RULES: Final = TlsOptions.ssl_principal_mapping_rules.name
CLIENT_AUTH: Final = TlsOptions.ssl_client_auth.name
STORE_BYTES_MAX: Final = 1 << 20
"""Of a file; those of operating systems, with all public authorities, have a quarter of it."""


class KeyStore(NamedTuple):
    key: Secret
    """PEM."""
    chain: tuple[bytes, ...]
    """Certificates in DER, that of the key first."""
    password: Secret | None


class TlsSettings(NamedTuple):
    """Of one side of a connection."""

    key_store: KeyStore | None
    trusted: tuple[bytes, ...] | None
    """Certificates in DER; None: those that the operating system trusts."""
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    """Empty: those of OpenSSL."""
    checks_host: bool


class TlsProperties:
    """The properties of one listener, or of one client."""

    def __init__(self, value_of: Callable[[Option[object]], object], prefix: str = "") -> None:
        """`value_of` gives what holds for a property; `prefix` is put before the names in sentences."""
        self._value_of = value_of
        self._prefix = prefix

    def get(self, name: str) -> object:
        return self._value_of(LISTENER_TLS_OPTIONS[name])

    def text(self, name: str) -> str | None:
        value = self.get(name)
        return value.reveal() if isinstance(value, Secret) else value if isinstance(value, str) and value else None

    def items(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.get(name))

    def refusal(self, name: str, why: str) -> ConfigError:
        return ConfigError(f"{self._prefix}{name}: {why}")

    def signatures(self) -> list[tuple[object, ...]]:
        """Of the files that are read: others after every change of one, or of its location."""
        paths = map(self.text, (KEYSTORE_LOCATION, TRUSTSTORE_LOCATION))
        return [(path, *signature(Path(path))) for path in paths if path is not None]

    def settings(self) -> TlsSettings:
        """Reads the files. Raises ConfigError."""
        versions = self.items(ENABLED_PROTOCOLS) or VERSIONS
        if self.text(PROTOCOL) == TLS_1_2:
            versions = tuple(each for each in versions if each == TLS_1_2)
        if not versions:
            raise self.refusal(ENABLED_PROTOCOLS, f"with {PROTOCOL}={TLS_1_2} no version is left")
        return TlsSettings(
            self._key_store(), self._trusted(), versions, self.items(CIPHER_SUITES), self.text(HOST_CHECK) is not None
        )

    def _key_store(self) -> KeyStore | None:
        path, key, chain = map(self.text, (KEYSTORE_LOCATION, KEYSTORE_KEY, KEYSTORE_CHAIN))
        if path is not None:
            if key is not None or chain is not None:
                raise self.refusal(KEYSTORE_LOCATION, f"it and {KEYSTORE_KEY} both have a key: give one of them")
            found = self._parsed(KEYSTORE_LOCATION, path)
            return self._checked(found, KEYSTORE_LOCATION, KEYSTORE_LOCATION)
        if (key is None) != (chain is None):
            raise self.refusal(KEYSTORE_KEY, f"it and {KEYSTORE_CHAIN} belong together: give both")
        if key is None or chain is None:
            return None
        keys = self._parsed_text(KEYSTORE_KEY, key.encode()).keys
        certificates = self._parsed_text(KEYSTORE_CHAIN, chain.encode()).certificates
        return self._checked(PemTexts(keys, certificates), KEYSTORE_KEY, KEYSTORE_CHAIN)

    def _checked(self, found: PemTexts, key_name: str, chain_name: str) -> KeyStore:
        if len(found.keys) != 1:
            raise self.refusal(key_name, f"there are {len(found.keys)} private keys in it, and one is needed")
        if not found.certificates:
            raise self.refusal(chain_name, "there is no certificate in it")
        password = self.get(KEY_PASSWORD)
        if found.has_encrypted_key and password is None:
            raise self.refusal(key_name, f"its private key is encrypted, so {KEY_PASSWORD} is needed")
        return KeyStore(found.keys[0], found.certificates, password if isinstance(password, Secret) else None)

    def _trusted(self) -> tuple[bytes, ...] | None:
        path, text = map(self.text, (TRUSTSTORE_LOCATION, TRUSTSTORE_CERTIFICATES))
        if path is not None and text is not None:
            raise self.refusal(
                TRUSTSTORE_LOCATION, f"it and {TRUSTSTORE_CERTIFICATES} both say whom to trust: give one"
            )
        if path is None and text is None:
            return None
        name = TRUSTSTORE_LOCATION if path is not None else TRUSTSTORE_CERTIFICATES
        found = self._parsed(name, path) if path is not None else self._parsed_text(name, (text or "").encode())
        if not found.certificates:
            raise self.refusal(name, "there is no certificate in it")
        return found.certificates

    def _parsed(self, name: str, path: str) -> PemTexts:
        try:
            found = parse_pem(_content(Path(path)))
            why = why_not_secret(Path(path)) if found.keys else None
            if why is not None:
                raise self.refusal(name, f"it has a private key, and {why}")
        except PemError as error:
            raise self.refusal(name, f"{path}: {error}") from None
        except OSError as error:
            raise self.refusal(name, f"cannot read {path}: {error.strerror}") from None
        return found

    def _parsed_text(self, name: str, data: bytes) -> PemTexts:
        try:
            return parse_pem(data)
        except PemError as error:
            raise self.refusal(name, str(error)) from None


def _content(path: Path) -> bytes:
    """Of a store. A client that alters its location may name what never ends, or is never there. Raises OSError, and
    PemError for what is none."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise PemError("it is no file")
    if found.st_size > STORE_BYTES_MAX:
        raise PemError(f"it has more than {STORE_BYTES_MAX:,} bytes")
    # There are files whose size is 0 and whose content is waited for, as /proc/kmsg.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(STORE_BYTES_MAX) or b""


# How often those who serve look whether files have changed: that costs a few microseconds.
LOOK_EVERY_MS: Final = 10_000
# Of all connections alike, whatever they are for.
_OF_ALL: Final = (ENABLED_PROTOCOLS, PROTOCOL, CIPHER_SUITES)


def prefixed_properties(config: ServerConfig, prefix: str) -> TlsProperties:
    """Those of a connection with properties of its own, `<prefix>ssl.…`. Versions and suites are those of all; what has
    no property with this prefix has its default."""

    def value_of(option: Option[object]) -> object:
        own = option if option.name in _OF_ALL else SERVER_OPTIONS.get(prefix + option.name)
        return option.default if own is None else config.value_of(own)

    return TlsProperties(value_of, prefix)


def signature(path: Path) -> tuple[int, ...]:
    """Another one after every change of the file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
