"""TLS of each listener, as the server, and of this broker as the client of others on their listener.

A replacement of the certificates of a listener that serves is held to what was there: users' ACLs have the subject, and
clients check the names (KIP-226).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from ssl import SSLContext
from typing import cast

from ottla.broker.config.options import ConfigError
from ottla.broker.config.security import protocol_of
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import SASL_SSL, WITH_TLS
from ottla.broker.config.server_tls import DEFAULT_RULE, NONE, TlsOptions
from ottla.broker.config.tls import (
    CLIENT_AUTH,
    KEYSTORE_LOCATION,
    MAPPING_RULES,
    TRUSTSTORE_CERTIFICATES,
    TRUSTSTORE_LOCATION,
    TlsProperties,
    TlsSettings,
)
from ottla.broker.config.tls_context import client_context, server_context, why_no_handshake
from ottla.security.distinguished_name import alternative_names_of, subject_of


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """Equal to another that says the same."""

    settings: TlsSettings
    client_auth: str
    mapping_rules: str
    as_server: SSLContext = field(compare=False)
    as_client: SSLContext = field(compare=False)
    """For this broker as a client of the same listener of others."""


def tls_of_listeners(config: ServerConfig, names: Iterable[str]) -> dict[str, ListenerTls]:
    """Of those with TLS. Reads the files of keys and certificates. Raises ConfigError."""
    return {name: tls_of_listener(config, name) for name in names if protocol_of(config, name) in WITH_TLS}


def tls_of_listener(config: ServerConfig, name: str) -> ListenerTls:
    """Raises ConfigError."""
    properties = tls_properties(config, name)
    settings = properties.settings()
    client_auth = _client_auth(config, name)
    if settings.key_store is None:
        raise properties.refusal(KEYSTORE_LOCATION, f"the listener {name} has TLS, which needs a key and a certificate")
    if client_auth != NONE and settings.trusted is None:
        raise properties.refusal(
            CLIENT_AUTH,
            f"{client_auth} needs {TRUSTSTORE_LOCATION} or {TRUSTSTORE_CERTIFICATES}: the authorities that the "
            "operating system trusts vouch for everybody",
        )
    rules = properties.text(MAPPING_RULES) or DEFAULT_RULE
    try:
        as_server, as_client = server_context(settings, client_auth), client_context(settings)
    except ConfigError as error:
        raise ConfigError(f"the listener {name}: {error}") from None
    return ListenerTls(settings, client_auth, rules, as_server, as_client)


def tls_properties(config: ServerConfig, listener: str) -> TlsProperties:
    """Those of the listener, and where it has none of its own, those of all."""
    return TlsProperties(partial(config.value_on, listener), f"listener.name.{listener.lower()}.")


def _client_auth(config: ServerConfig, listener: str) -> str:
    """With SASL a certificate says nothing about the client, so there the value of all listeners does not count."""
    own = cast("str | None", config.listener_value(listener, None, CLIENT_AUTH))
    if own is None:
        return NONE if protocol_of(config, listener) == SASL_SSL else config.ssl_client_auth
    return own


def check_among_brokers(listener: str, old: ListenerTls, new: ListenerTls) -> None:
    """Raises ConfigError where brokers, some with the old certificates and some with the new ones, could not connect to
    each other, who can now."""
    if why_no_handshake(old.as_client, old.as_server) is not None:
        # They do not use this listener among each other.
        return
    for client, server, who in (
        (new, new, "brokers with it could not connect to each other"),
        (old, new, "a broker with the old one could not connect to this one"),
        (new, old, "this broker could not connect to one with the old one"),
    ):
        why = why_no_handshake(client.as_client, server.as_server)
        if why is not None:
            name = f"listener.name.{listener.lower()}.{KEYSTORE_LOCATION}"
            raise ConfigError(f"{name}: {who}: {why}")


def check_replacement(config: ServerConfig, listener: str, old: ListenerTls, new: ListenerTls) -> None:
    """Raises ConfigError where clients that trust the old certificate would not know the new one."""
    before, after = old.settings.key_store, new.settings.key_store
    assert before is not None, "it is served with a key"
    assert after is not None, "it was looked at"
    name = f"listener.name.{listener.lower()}.{KEYSTORE_LOCATION}"
    try:
        subject, wanted = subject_of(after.chain[0]), subject_of(before.chain[0])
        missing = alternative_names_of(before.chain[0]) - alternative_names_of(after.chain[0])
    except ValueError:
        raise ConfigError(f"{name}: its first certificate cannot be read") from None
    if subject != wanted and not config.ssl_allow_dn_changes:
        raise ConfigError(
            f"{name}: the subject of the new certificate is {subject}, that of the old one {wanted}; "
            f"{TlsOptions.ssl_allow_dn_changes.name}=true allows that"
        )
    if missing and not config.ssl_allow_san_changes:
        raise ConfigError(
            f"{name}: the new certificate lacks {len(missing)} of the alternative names of the old one; "
            f"{TlsOptions.ssl_allow_san_changes.name}=true allows that"
        )
