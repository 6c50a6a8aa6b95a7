"""Bugs of TLS, tokens and secrets that the tests must find, seeded one at a time (ST in docs/seeded-bugs.md)."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ottla.broker.authorization.access import Access, Authorization, View
from ottla.broker.config import listener_tls
from ottla.broker.config.options import ConfigError, Option
from ottla.broker.config.server import ConfigSource, ConfigValue, ServerConfig
from ottla.broker.server.network import ReceiveThreshold
from ottla.broker.server.tls_connection import TlsConnection
from ottla.broker.server.token_keys import TokenKeys
from ottla.security import access_token, distinguished_name
from ottla.security.access_token import AccessToken, AccessTokenValidator, TokenRefused, parse_key_set
from ottla.security.authentication import Principal
from tests.broker import test_secret_configs, test_token_keys
from tests.broker.authorization import test_decisions
from tests.broker.authorization.world import secured
from tests.broker.virtual_cluster import Cluster
from tests.security import test_access_token
from tests.security.tokens import claims, token
from tests.tls import test_between_brokers, test_connection, test_distinguished_name, test_settings

Patch = pytest.MonkeyPatch
Test = Callable[[Path], None]


def decisions_are_kept_by_host(patch: Patch) -> None:
    views: dict[str, View] = {}

    def access(self: Authorization, principal: Principal, host: str, api: str) -> Access:
        view = views.setdefault(host, View(self.authorizer, principal, host, logs_allowed=False))
        return Access(view, principal, self.metadata.image, api, self.decisions, self._config)

    patch.setattr(Authorization, "access", access)


def kernel_waits_for_what_tls_has(patch: Patch) -> None:
    def init(self: ReceiveThreshold, transport: asyncio.Transport) -> None:
        self._socket = transport.get_extra_info("socket")
        self._bytes = 1

    patch.setattr(ReceiveThreshold, "__init__", init)


def one_record_for_each_event(patch: Patch) -> None:
    def deliver(self: TlsConnection) -> None:
        room = self._inner.get_buffer(-1)
        try:
            filled = int(self._object().read(len(room), room))  # type: ignore[arg-type]
        except test_connection.ssl.SSLWantReadError:
            return
        self._inner.buffer_updated(filled)

    patch.setattr(TlsConnection, "_deliver", deliver)


def what_follows_the_handshake_waits(patch: Patch) -> None:
    def advance(self: TlsConnection) -> None:
        if self._is_established:
            self._deliver()
        else:
            self._shake_hands()

    patch.setattr(TlsConnection, "_advance", advance)


def subject_in_the_order_of_the_certificate(patch: Patch) -> None:
    patch.setattr(distinguished_name, "reversed", list, raising=False)


def addresses_of_mail_are_text(patch: Patch) -> None:
    patch.setitem(distinguished_name._KEYWORDS, "1.2.840.113549.1.9.1", "EMAILADDRESS")


def client_auth_of_all_counts_with_sasl(patch: Patch) -> None:
    def client_auth(config: ServerConfig, listener: str) -> str:
        return config.listener_value(listener, None, "ssl.client.auth") or config.ssl_client_auth  # type: ignore[return-value]

    patch.setattr(listener_tls, "_client_auth", client_auth)


def secrets_are_shown(patch: Patch) -> None:
    values_of = ServerConfig.values_of

    def shown(self: ServerConfig, option: Option[Any]) -> Iterator[ConfigValue]:
        text = self._static.get(option.name)
        return (
            values_of(self, option)
            if text is None
            else iter([ConfigValue(option.name, text, ConfigSource.STATIC_BROKER)])
        )

    patch.setattr(ServerConfig, "values_of", shown)


def errors_name_the_value(patch: Patch) -> None:
    checked = ServerConfig._checked

    def echoed(self: ServerConfig, name: str, text: str) -> str:
        try:
            return checked(self, name, text)
        except ConfigError as error:
            raise ConfigError(f"{error} ({text})") from None

    patch.setattr(ServerConfig, "_checked", echoed)


def without(patch: Patch, **rules: None) -> None:
    accepted = AccessTokenValidator._accepted

    def laxly(self: AccessTokenValidator, said: Any, now_wall_ms: int) -> AccessToken:
        self._rules = self._rules._replace(**rules)
        return accepted(self, said, now_wall_ms)

    patch.setattr(AccessTokenValidator, "_accepted", laxly)


def issuer_does_not_count(patch: Patch) -> None:
    without(patch, issuer=None)


def audience_does_not_count(patch: Patch) -> None:
    without(patch, audience=None)


def token_says_by_which_algorithm(patch: Patch) -> None:
    verified = AccessTokenValidator._verified_claims

    def by_the_token(self: AccessTokenValidator, text: str) -> Any:
        header = access_token._unverified_header(text)
        if header["alg"] != "HS256":
            return verified(self, text)
        signed, _, signature = text.rpartition(".")
        key = self._find_key(header["kid"])
        pem = key.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[union-attr]
        digest = hmac.new(pem, signed.encode(), hashlib.sha256).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != signature:
            raise TokenRefused("the signature of the token is not valid")
        return json.loads(base64.urlsafe_b64decode(signed.split(".")[1] + "=="))

    patch.setattr(AccessTokenValidator, "_verified_claims", by_the_token)


def first_key_stands_in_for_others(patch: Patch) -> None:
    init = AccessTokenValidator.__init__

    def with_a_default(self: AccessTokenValidator, rules: Any, find_key: Any) -> None:
        init(self, rules, lambda name: find_key(name) or find_key("RSA"))

    patch.setattr(AccessTokenValidator, "__init__", with_a_default)


def keys_are_fetched_within_a_login(patch: Patch) -> None:
    def find(self: TokenKeys, name: str) -> Any:
        if name not in self._keys:
            self._keys = parse_key_set(self._fetch(self._source.url))
        return self._keys.get(name)

    patch.setattr(TokenKeys, "find", find)


def in_a_loop(test: Callable[[Path], Awaitable[None]]) -> Test:
    return lambda directory: asyncio.run(test(directory))  # type: ignore[arg-type]


async def with_acls(directory: Path) -> None:
    async with secured(directory) as world:
        await test_decisions.test_one_who_logs_in_again_is_asked_about_as_it_is_now(world)


def of_subjects(_: Path) -> None:
    for parts, text in test_distinguished_name.CORPUS:
        test_distinguished_name.test_subject_of_a_certificate(parts, text)  # type: ignore[arg-type]


def of_a_token(changed: dict[str, Any], why: str) -> Test:
    return lambda _: test_access_token.test_token_that_says_something_else_is_refused(changed, why)


def of_fetched_keys(_: Path) -> None:
    cluster = Cluster()
    try:
        test_token_keys.test_unknown_key_has_them_fetched_at_once(test_token_keys.World(cluster))
    finally:
        cluster.loop.close()


def of_an_unknown_key(_: Path) -> None:
    forged = token(claims(), name="unknown")
    test_access_token.test_token_without_a_signature_of_the_key_is_refused(forged, "not in the key set")


SECRETS = in_a_loop(test_secret_configs.test_a_secret_is_neither_shown_nor_altered)
SEEDED: dict[str, tuple[Callable[[Patch], None], Test]] = {
    "ST-7": (decisions_are_kept_by_host, in_a_loop(with_acls)),
    "ST-28": (
        kernel_waits_for_what_tls_has,
        in_a_loop(test_between_brokers.test_the_kernel_waits_for_no_more_than_comes),
    ),
    "ST-29 records": (one_record_for_each_event, lambda _: test_connection.test_records_cut_anywhere(1000)),
    "ST-29 handshake": (
        what_follows_the_handshake_waits,
        lambda _: test_connection.test_requests_behind_the_handshake_in_one_piece(),
    ),
    "ST-30 order": (subject_in_the_order_of_the_certificate, of_subjects),
    "ST-30 mail": (addresses_of_mail_are_text, of_subjects),
    "ST-31": (
        client_auth_of_all_counts_with_sasl,
        lambda _: test_settings.test_with_sasl_the_client_auth_of_all_does_not_count(),
    ),
    "ST-32 described": (secrets_are_shown, SECRETS),
    "ST-32 echoed": (errors_name_the_value, SECRETS),
    "ST-33 issuer": (issuer_does_not_count, of_a_token({"iss": None}, "another issuer")),
    "ST-33 audience": (audience_does_not_count, of_a_token({"aud": None}, "another audience")),
    "ST-33 algorithm": (
        token_says_by_which_algorithm,
        lambda _: test_access_token.test_public_key_is_no_shared_secret(),
    ),
    "ST-33 key": (first_key_stands_in_for_others, of_an_unknown_key),
    "ST-34": (keys_are_fetched_within_a_login, of_fetched_keys),
}


@pytest.mark.parametrize(("seed_bug", "test"), SEEDED.values(), ids=SEEDED.keys())
def test_a_seeded_bug_is_found(
    monkeypatch: Patch, tmp_path: Path, seed_bug: Callable[[Patch], None], test: Test
) -> None:
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    test(tmp_path / "right")
    seed_bug(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(tmp_path / "wrong")
