"""What a listener with OAUTHBEARER wants of access tokens, and where their keys are: what the properties say together.

What would accept any token is refused at the start (CVE-2026-33557).
"""

from importlib.util import find_spec
from typing import NamedTuple, cast

from ottla.broker.config.options import ConfigError, Option
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_oauth import AUDIENCE, ISSUER, JWKS_URL, OAUTHBEARER, OAuthOptions

EXTRA = "pip install 'ottla[oauth]'"


class OAuthSettings(NamedTuple):
    """Of one listener."""

    jwks_url: str
    refresh_ms: int
    retry_ms: int
    retry_ms_max: int
    issuer: str | None
    """None: any, as the audience."""
    audience: tuple[str, ...] | None
    skew_ms: int
    subject_claim: str
    scope_claim: str


def oauth_settings(config: ServerConfig, listener: str) -> OAuthSettings:
    """Raises ConfigError."""
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise ConfigError(f"{OAUTHBEARER} of the listener {listener} needs PyJWT and cryptography: {EXTRA}")

    def value_of(option: object) -> object:
        return config.value_on(listener, cast("Option[object]", option))

    url = cast("str | None", value_of(OAuthOptions.sasl_oauthbearer_jwks_endpoint_url))
    if url is None:
        raise ConfigError(f"{OAUTHBEARER} of the listener {listener} needs {JWKS_URL}, where the keys of tokens are")
    issuer = cast("str | None", value_of(OAuthOptions.sasl_oauthbearer_expected_issuer))
    audience = cast("tuple[str, ...] | None", value_of(OAuthOptions.sasl_oauthbearer_expected_audience))
    if not issuer and not value_of(OAuthOptions.sasl_oauthbearer_allow_unverified_issuer):
        raise _unverified(listener, ISSUER, OAuthOptions.sasl_oauthbearer_allow_unverified_issuer.name)
    if not audience and not value_of(OAuthOptions.sasl_oauthbearer_allow_unverified_audience):
        raise _unverified(listener, AUDIENCE, OAuthOptions.sasl_oauthbearer_allow_unverified_audience.name)
    return OAuthSettings(
        jwks_url=url,
        refresh_ms=cast("int", value_of(OAuthOptions.sasl_oauthbearer_jwks_endpoint_refresh_ms)),
        retry_ms=cast("int", value_of(OAuthOptions.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms)),
        retry_ms_max=cast("int", value_of(OAuthOptions.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms)),
        issuer=issuer,
        audience=audience,
        skew_ms=1000 * cast("int", value_of(OAuthOptions.sasl_oauthbearer_clock_skew_seconds)),
        subject_claim=cast("str", value_of(OAuthOptions.sasl_oauthbearer_sub_claim_name)),
        scope_claim=cast("str", value_of(OAuthOptions.sasl_oauthbearer_scope_claim_name)),
    )


def _unverified(listener: str, name: str, allowing: str) -> ConfigError:
    return ConfigError(
        f"{OAUTHBEARER} of the listener {listener} needs {name}: without it, tokens for others would count here; "
        f"{allowing}=true allows that"
    )
