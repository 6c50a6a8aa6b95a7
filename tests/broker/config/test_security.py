"""What the properties of SASL say together, and which of them cannot be (§51.4–51.6, §59.5–59.7, §68)."""

from pathlib import Path

import pytest

from ottla.broker.config.describe import broker_entries
from ottla.broker.config.options import ConfigError, Kind
from ottla.broker.config.security import MechanismSettings, SaslSettings
from ottla.broker.config.server import ConfigSource, ServerConfig
from ottla.broker.server.listeners import Listeners
from ottla.security.client import LoginCredentials, Secret

JAAS = "listener.name.ext.plain.sasl.jaas.config"
SCRAM_JAAS = "listener.name.ext.scram-sha-256.sasl.jaas.config"
USERS = "listener.name.ext.plain.users.file"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required "
ALICE = {JAAS: f'{PLAIN} user_alice="in wonderland";'}
EXT = {
    "listeners": "INTERNAL://127.0.0.1:0,EXT://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "plain, SCRAM-SHA-256",
}
FOR_BROKERS = {"inter.broker.listener.name": "EXT", "sasl.mechanism.inter.broker.protocol": "PLAIN"}


def listeners(settings: dict[str, str]) -> Listeners:
    return Listeners(ServerConfig(settings))


def test_a_listener_gets_its_mechanisms_with_their_users() -> None:
    found = listeners(EXT | ALICE)

    mechanisms = {
        "PLAIN": MechanismSettings(0, {"alice": Secret("in wonderland")}),
        "SCRAM-SHA-256": MechanismSettings(0, {}),
    }
    assert found.sasl == {"EXT": SaslSettings(mechanisms, 524288, 100)}
    assert list(found.sasl["EXT"].mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
    assert found.inter_broker_login is None


def test_what_is_set_for_less_comes_first() -> None:
    """Mechanism and listener, listener, all."""
    found = listeners(
        EXT
        | ALICE
        | {
            "connections.max.reauth.ms": "1",
            "listener.name.ext.connections.max.reauth.ms": "2",
            "listener.name.ext.plain.connections.max.reauth.ms": "3",
            "listener.name.ext.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "listener.name.ext.sasl.server.max.receive.size": "2048",
            "connection.failed.authentication.delay.ms": "5",
        }
    ).sasl["EXT"]

    assert {name: each.reauthentication_ms for name, each in found.mechanisms.items()} == {
        "SCRAM-SHA-512": 2,
        "PLAIN": 3,
    }
    assert (found.receive_bytes_max, found.failure_delay_ms) == (2048, 5)


def test_without_a_map_listeners_are_named_by_their_protocol() -> None:
    found = listeners(
        {
            "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "security.inter.broker.protocol": "PLAINTEXT",
        }
    )
    assert list(found.sasl["SASL_PLAINTEXT"].mechanisms) == ["SCRAM-SHA-512"]
    assert found.inter_broker == "PLAINTEXT"


@pytest.mark.parametrize(
    ("mechanism", "name", "module"), [("PLAIN", JAAS, f"{PLAIN} user_a=b "), ("SCRAM-SHA-256", SCRAM_JAAS, SCRAM)]
)
def test_brokers_log_in_with_the_name_of_their_listener(mechanism: str, name: str, module: str) -> None:
    settings = EXT | ALICE | FOR_BROKERS | {"sasl.mechanism.inter.broker.protocol": mechanism}
    settings[name] = f'{module} username="broker" password="between us";'
    assert listeners(settings).inter_broker_login == LoginCredentials(mechanism, "broker", Secret("between us"))


def test_users_of_plain_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# Who may log in.\nalice:in: wonderland\n\nbob:b\n")
    path.chmod(0o600)
    found = listeners(EXT | {USERS: str(path)})
    assert found.sasl["EXT"].mechanisms["PLAIN"].passwords == {"alice": Secret("in: wonderland"), "bob": Secret("b")}


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("alice:a", 0o640, "{} can be read by others than its owner; chmod 600 mends that"),
        ("alice:a\nhidden", 0o600, "line 2 of {} is not NAME:PASSWORD"),
        ("alice:hidden\nalice:b", 0o600, "line 2 of {} has a user that an earlier line has"),
        (None, 0, "cannot read {}: No such file or directory"),
    ],
)
def test_file_of_users_that_cannot_be(tmp_path: Path, text: str | None, mode: int, reason: str) -> None:
    path = tmp_path / "users"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(ConfigError) as refused:
        listeners(EXT | {USERS: str(path)})
    assert str(refused.value) == f"{USERS}: {reason.format(path)}"


NO_DEFAULT = "Kafka's default, GSSAPI, is not supported: name some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
OTHER_MODULE = "PlainLoginModule, not ScramLoginModule"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
PER_MECHANISM = "it is set for a mechanism of a listener, as listener.name.<listener>.<mechanism>.sasl.jaas.config"
FOR_ALL = "it cannot be set for one listener alone, but for all as"
ONLY = "is not supported, only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER are"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"sasl.enabled.mechanisms": ""}, f"sasl.enabled.mechanisms of the listener EXT: {NO_DEFAULT}, OAUTHBEARER"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, f"sasl.enabled.mechanisms=GSSAPI: GSSAPI {ONLY}"),
        (
            {"listener.name.ext.sasl.enabled.mechanisms": "GSSAPI"},
            f"listener.name.ext.sasl.enabled.mechanisms=GSSAPI: GSSAPI {ONLY}",
        ),
        (
            {"inter.broker.listener.name": "EXT"},
            f"brokers log in to each other on EXT; sasl.mechanism.inter.broker.protocol: {NO_DEFAULT}",
        ),
        (FOR_BROKERS, f"{JAAS} needs username and password: brokers log in to each other on EXT"),
        (
            FOR_BROKERS | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512 is not among the sasl.enabled.mechanisms of EXT",
        ),
        (
            {JAAS: f"{PLAIN};"},
            f"PLAIN on the listener EXT has no users: set {USERS}, or user_NAME in {JAAS}",
        ),
        ({JAAS: f"{PLAIN} user_a=hidden"}, f"{JAAS}: ';' is missing at the end of the login configuration"),
        ({JAAS: f"{PLAIN} user_a=hidden debug=x;"}, f"{JAAS}: PlainLoginModule has no option debug"),
        ({JAAS: f"{SCRAM} user_a=hidden;"}, f"{JAAS}: the login module of PLAIN is {OTHER_MODULE}"),
        ({SCRAM_JAAS: f"{SCRAM} user_a=hidden;"}, f"{SCRAM_JAAS}: ScramLoginModule has no option user_a"),
        ({USERS: "/nowhere"}, f"{USERS} and {JAAS} both have users: give them in one of them"),
        (
            {"listener.name.other.sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.other.sasl.enabled.mechanisms: there is no listener OTHER, only INTERNAL, EXT",
        ),
        (
            {"connection.failed.authentication.delay.ms": "600000"},
            "connection.failed.authentication.delay.ms is not less than connections.max.idle.ms",
        ),
        (
            {"sasl.jaas.config": "hidden"},
            f"sasl.jaas.config: {PER_MECHANISM}",
        ),
        (
            {"listener.name.ext.sasl.jaas.config": "hidden"},
            f"listener.name.ext.sasl.jaas.config: {PER_MECHANISM}",
        ),
        (
            {"listener.name.ext.max.connections.per.ip": "5"},
            f"listener.name.ext.max.connections.per.ip: {FOR_ALL} max.connections.per.ip",
        ),
        ({"sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name: GSSAPI is not supported"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER"},
            "OAUTHBEARER of the listener EXT needs sasl.oauthbearer.jwks.endpoint.url, where the keys of tokens are",
        ),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", JWKS: "file:///keys"},
            ("OAUTHBEARER of the listener EXT needs sasl.oauthbearer.expected.issuer: without it, tokens for others "
            "would count here; sasl.oauthbearer.allow.unverified.issuer=true allows that"),
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                JWKS: "file:///keys",
                "listener.name.ext.sasl.oauthbearer.expected.issuer": "i",
            },
            ("OAUTHBEARER of the listener EXT needs sasl.oauthbearer.expected.audience: without it, tokens for others "
            "would count here; sasl.oauthbearer.allow.unverified.audience=true allows that"),
        ),
        (
            {JWKS: "http://issuer.example/keys"},
            (f"{JWKS}=http://issuer.example/keys: keys come over https, or from this machine: who changes them on "
            "their way can be anybody"),
        ),
        (
            {JWKS: "https://a:b@issuer.example/"},
            f"{JWKS}=https://a:b@issuer.example/: a name and a password cannot be part of it",
        ),
        ({JWKS: "ftp://issuer.example/"}, f"{JWKS}=ftp://issuer.example/: expected https://…, or file:///PATH"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://x"},
            "sasl.oauthbearer.token.endpoint.url: brokers do not log in to each other by OAUTHBEARER",
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"},
            ("sasl.mechanism.inter.broker.protocol=OAUTHBEARER: brokers log in to each other by PLAIN, SCRAM-SHA-256, "
            "SCRAM-SHA-512, and by certificates"),
        ),
        (
            {"listener.name.ext.oauthbearer.sasl.server.callback.handler.class": "my.Handler"},
            ("listener.name.ext.oauthbearer.sasl.server.callback.handler.class=my.Handler: Java classes cannot be "
            "loaded: org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler, or nothing, is "
            "expected"),
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(changed: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        listeners(EXT | ALICE | changed)
    assert str(refused.value) == sentence
    assert "hidden" not in str(refused.value)


def test_listener_may_have_token_rules_of_its_own() -> None:
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.ext.oauthbearer.sasl.jaas.config": "o.OAuthBearerLoginModule required;",
        JWKS: "https://issuer.example/keys",
        "sasl.oauthbearer.expected.issuer": "of all",
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "listener.name.ext.sasl.oauthbearer.expected.issuer": "of this one",
        "listener.name.ext.sasl.oauthbearer.clock.skew.seconds": "7",
    }

    oauth = listeners(EXT | settings).sasl["EXT"].mechanisms["OAUTHBEARER"].oauth

    assert oauth is not None
    assert (oauth.issuer, oauth.audience, oauth.skew_ms) == ("of this one", None, 7_000)


def test_secrets_are_described_without_a_value() -> None:
    entries = {entry.name: entry for entry in broker_entries(ServerConfig(EXT | ALICE))}

    entry = entries[JAAS]

    assert (entry.value, entry.kind, entry.read_only) == (None, Kind.PASSWORD, True)
    assert entry.synonyms == ((JAAS, None, ConfigSource.STATIC_BROKER),)
    assert "wonderland" not in repr(entries)
    assert entries["sasl.enabled.mechanisms"].value == "PLAIN,SCRAM-SHA-256"


@pytest.mark.parametrize("of_all_brokers", [True, False])
def test_secrets_are_not_altered_by_request(of_all_brokers: bool) -> None:
    with pytest.raises(ConfigError) as refused:
        ServerConfig(EXT | ALICE).check_dynamic({JAAS: "hidden"}, of_all_brokers=of_all_brokers)
    assert str(refused.value) == f"{JAAS} cannot be changed while the broker runs"


def test_configuration_shows_no_secret() -> None:
    found = listeners(EXT | ALICE | FOR_BROKERS | {JAAS: f'{PLAIN} user_alice=hidden username=b password="hidden";'})
    assert "hidden]" in repr(found.sasl)
    shown = f"{found.sasl} {found.inter_broker_login} {ServerConfig(EXT | ALICE).listener_properties}"
    assert "hidden" not in shown.replace("[hidden]", "")


def test_a_value_is_what_it_says(tmp_path: Path) -> None:
    """CVE-2024-31141: nothing in it is replaced by what stands in a file or in the environment."""
    path = tmp_path / "file"
    path.write_text("rack=of-the-file")
    for value in (f"${{file:{path}:rack}}", "${env:HOME}", "$HOME", f"@{path}"):
        assert ServerConfig({"broker.rack": value}).broker_rack == value
