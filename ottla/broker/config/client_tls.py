"""TLS of a client by Kafka's client properties; and these properties without files, for a client on another machine."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from ssl import SSLContext
from typing import Final

from ottla.broker.config.client_properties import ClientProperties
from ottla.broker.config.options import ConfigError, Option
from ottla.broker.config.tls import (
    KEYSTORE_CHAIN,
    KEYSTORE_KEY,
    KEYSTORE_LOCATION,
    TRUSTSTORE_CERTIFICATES,
    TRUSTSTORE_LOCATION,
    TlsProperties,
    TlsSettings,
)
from ottla.broker.config.tls_context import client_context
from ottla.security.pem import pem_of

# By the property with a file, those that could stand for it.
_IN_PLACE_OF: Final = {
    TRUSTSTORE_LOCATION: (TRUSTSTORE_CERTIFICATES,),
    KEYSTORE_LOCATION: (KEYSTORE_KEY, KEYSTORE_CHAIN),
}
_CERTIFICATE = "CERTIFICATE"


def client_tls(properties: ClientProperties, files: Mapping[str, Path] | None = None) -> SSLContext:
    """What connections are made with. `files`, by the property of their location, go before the properties. Raises
    ValueError with a sentence."""
    try:
        return client_context(_settings(properties, files or {}))
    except ConfigError as error:
        raise ValueError(str(error)) from None


def without_files(properties: ClientProperties) -> dict[str, str]:
    """Those of security, with the texts that are in the files of stores in place of these, as Java's clients take them
    too. Raises ValueError."""
    values = properties.of_security()
    if not properties.has_tls:
        return values
    try:
        found = _settings(properties, {})
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return {name: text for name, text in values.items() if name not in _IN_PLACE_OF} | dict(_texts(found))


def _texts(found: TlsSettings) -> Iterator[tuple[str, str]]:
    if found.trusted is not None:
        yield "ssl.truststore.type", "PEM"
        yield TRUSTSTORE_CERTIFICATES, "".join(pem_of(_CERTIFICATE, each) for each in found.trusted)
    if found.key_store is not None:
        yield "ssl.keystore.type", "PEM"
        yield KEYSTORE_KEY, found.key_store.key.reveal()
        yield KEYSTORE_CHAIN, "".join(pem_of(_CERTIFICATE, each) for each in found.key_store.chain)


def _settings(properties: ClientProperties, files: Mapping[str, Path]) -> TlsSettings:
    """Raises ConfigError, ValueError."""

    def value_of(option: Option[object]) -> object:
        for location, others in _IN_PLACE_OF.items():
            if location in files and option.name in (location, *others):
                return str(files[location]) if option.name == location else option.default
        text = properties.text(option.name)
        return option.default if text is None else option.parse(text)

    for name in ("ssl.keystore.password", "ssl.truststore.password"):
        if properties.text(name) is not None:
            raise ValueError(f"{name}: stores are PEM files, where only the key has a password: ssl.key.password")
    tls = TlsProperties(value_of)
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        tls.get(name)
    return tls.settings()
