"""Server properties of TLS: `ssl.*`, for all listeners with TLS, or for one as `listener.name.<listener>.ssl.*`."""

from copy import copy
from typing import Final

from ottla.broker.config.options import (
    Kind,
    Option,
    Update,
    boolean,
    choice,
    choices,
    optional_text,
    options_of,
    secret_option,
)
from ottla.broker.config.options import text_option as text

PEM = "PEM"

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
VERSIONS: Final = (TLS_1_2, TLS_1_3)
NONE, REQUESTED, REQUIRED = "none", "requested", "required"
HTTPS = "https"
DEFAULT_RULE = "DEFAULT"


def _store_type(given: str) -> str:
    if given.upper() != PEM:
        from ottla.security.pem import CONVERSION

        raise ValueError(f"only {PEM} stores are read; {CONVERSION}")
    return PEM


def _rules(given: str) -> str:
    # Imported here: a broker without TLS starts without it.
    from ottla.security.principal_mapping import PrincipalMapper

    PrincipalMapper(given)
    return given


def host_check(given: str) -> str:
    if given.lower() not in (HTTPS, ""):
        raise ValueError("expected https, or nothing")
    return given.lower()


def _store(name: str, what: str) -> Option[str]:
    meaning = f"Form of the {what}. Kafka's default is JKS, which is not supported, as PKCS12 is not."
    return text(name, PEM, meaning, parse=_store_type, bounds=PEM, update=Update.READ_ONLY)


class TlsOptions:
    ssl_keystore_type = _store("ssl.keystore.type", "key store")
    ssl_keystore_location = optional_text(
        "ssl.keystore.location",
        "PEM file with the private key and the certificate chain, leaf first; only its owner may read it (mode 0600).",
    )
    ssl_keystore_key = secret_option("ssl.keystore.key", "The private key as PEM text, in place of a file.")
    ssl_keystore_certificate_chain = secret_option(
        "ssl.keystore.certificate.chain",
        "The certificate chain that belongs to ssl.keystore.key, as PEM text, leaf first.",
    )
    ssl_key_password = secret_option("ssl.key.password", "Password of an encrypted private key.")
    ssl_truststore_type = _store("ssl.truststore.type", "trust store")
    ssl_truststore_location = optional_text(
        "ssl.truststore.location",
        "PEM file with the certificates of the authorities that vouch for clients and brokers.",
    )
    ssl_truststore_certificates = secret_option(
        "ssl.truststore.certificates", "The certificates of ssl.truststore.location as PEM text, in place of a file."
    )
    ssl_client_auth = choice(
        "ssl.client.auth",
        NONE,
        (NONE, REQUESTED, REQUIRED),
        "Whether clients have to show a certificate. On a listener with SASL only its own value counts.",
    )
    ssl_enabled_protocols = choices(
        "ssl.enabled.protocols", VERSIONS, VERSIONS, "Versions of TLS that are spoken; empty: all.", may_be_empty=True
    )
    ssl_protocol = choice(
        "ssl.protocol", TLS_1_3, VERSIONS, "The newest version of TLS that is spoken, among ssl.enabled.protocols."
    )
    ssl_cipher_suites = Option[tuple[str, ...]](
        "ssl.cipher.suites",
        Kind.LIST,
        (),
        "Cipher suites that are spoken, by the names of the IANA; empty: those of OpenSSL.",
        parse=lambda given: tuple(each.strip() for each in given.split(",") if each.strip()),
        bounds="a list of suites",
        update=Update.READ_ONLY,
    )
    ssl_endpoint_identification_algorithm = text(
        "ssl.endpoint.identification.algorithm",
        HTTPS,
        "Whether a broker that connects to another checks the name in its certificate: https, or nothing.",
        parse=host_check,
        bounds="https, or nothing",
        update=Update.READ_ONLY,
    )
    ssl_principal_mapping_rules = text(
        "ssl.principal.mapping.rules",
        DEFAULT_RULE,
        "Which name a client has by the subject of its certificate, as rules in Kafka's form.",
        parse=_rules,
        bounds="a list of RULE:pattern/replacement/[LU] and DEFAULT",
        update=Update.READ_ONLY,
    )
    ssl_allow_dn_changes = boolean(
        "ssl.allow.dn.changes", False, "Whether a certificate may be replaced by one with another subject."
    )
    ssl_allow_san_changes = boolean(
        "ssl.allow.san.changes", False, "Whether a certificate may be replaced by one that lacks alternative names."
    )


def _of_a_listener(option: Option[object]) -> Option[object]:
    """Files of certificates can be replaced while the broker runs, those of one listener of one broker at a time."""
    if option.name not in ("ssl.keystore.location", "ssl.truststore.location"):
        return option
    altered = copy(option)
    altered.update = Update.PER_BROKER
    return altered


LISTENER_TLS_OPTIONS: dict[str, Option[object]] = {
    name: _of_a_listener(option) for name, option in options_of(TlsOptions).items()
}
