"""Server properties of OAUTHBEARER, `sasl.oauthbearer.*`, for all listeners that have it, or for one of them."""

from typing import Final

from ottla.broker.config.options import (
    Kind,
    Option,
    Update,
    boolean,
    integer,
    long,
    optional_text,
    options_of,
    text_option,
)
from ottla.protocol.address import is_loopback

OAUTHBEARER: Final = "OAUTHBEARER"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"


def _jwks_url(text: str) -> str | None:
    if not text:
        return None
    # Imported here: most brokers start without it.
    from urllib.parse import urlsplit

    parts = urlsplit(text)
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return text
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("expected https://…, or file:///PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a name and a password cannot be part of it")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("keys come over https, or from this machine: who changes them on their way can be anybody")
    return text


def _claim(text: str) -> str:
    if not text:
        raise ValueError("expected the name of a claim")
    return text


def _claim_option(name: str, default: str, meaning: str) -> Option[str]:
    return text_option(name, default, meaning, parse=_claim, bounds="any text", update=Update.READ_ONLY)


class OAuthOptions:
    sasl_oauthbearer_jwks_endpoint_url = Option[str | None](
        JWKS_URL,
        Kind.STRING,
        None,
        "Where the public keys are that access tokens are signed with, as a JSON Web Key Set.",
        parse=_jwks_url,
        bounds="https://…, http://… of this machine, or file:///PATH",
        update=Update.READ_ONLY,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the keys are fetched again, in milliseconds; a file is looked at every ten seconds.",
        at_least=1_000,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "How long to wait after the keys could not be fetched, in milliseconds; doubled each time.",
        at_least=1,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        "The longest such wait, in milliseconds.",
        at_least=1,
    )
    sasl_oauthbearer_expected_issuer = optional_text(ISSUER, "Issuer that an access token has to be of (iss).")
    sasl_oauthbearer_expected_audience = Option[tuple[str, ...] | None](
        AUDIENCE,
        Kind.LIST,
        None,
        "Audiences of which an access token has to be for one (aud).",
        parse=lambda text: tuple(each.strip() for each in text.split(",") if each.strip()) or None,
        bounds="a list of texts",
        update=Update.READ_ONLY,
    )
    sasl_oauthbearer_allow_unverified_issuer = boolean(
        "sasl.oauthbearer.allow.unverified.issuer", False, "Whether access tokens may be of any issuer (as Kafka 4.4)."
    )
    sasl_oauthbearer_allow_unverified_audience = boolean(
        "sasl.oauthbearer.allow.unverified.audience",
        False,
        "Whether access tokens may be for any audience (as Kafka 4.4).",
    )
    sasl_oauthbearer_clock_skew_seconds = integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clock of the issuer may be from this broker's.",
        at_least=0,
        at_most=3600,
    )
    sasl_oauthbearer_sub_claim_name = _claim_option(
        "sasl.oauthbearer.sub.claim.name", "sub", "Claim of an access token that names the user."
    )
    sasl_oauthbearer_scope_claim_name = _claim_option(
        "sasl.oauthbearer.scope.claim.name", "scope", "Claim of an access token with its scopes, which grant nothing."
    )


LISTENER_OAUTH_OPTIONS: dict[str, Option[object]] = dict(options_of(OAuthOptions))
