"""What the properties of TLS say together, and which of them cannot be: sentences that show nothing of a secret."""

from pathlib import Path

import pytest

from ottla.broker.config.describe import broker_entries
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.listeners import Listeners
from ottla.security.pem import parse_pem
from tests.tls.brokers import BASE, of_listener
from tests.tls.certificates import PASSWORD, Authority

CA = Authority()
SERVER = CA.issue("broker")
INLINE = of_listener("tls", keystore_key=SERVER.key_pem, keystore_certificate_chain=SERVER.chain_pem)


def listeners(settings: dict[str, str]) -> Listeners:
    return Listeners(ServerConfig(BASE | settings))


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        listeners(settings)
    return str(refused.value)


def test_what_is_set_for_a_listener_comes_first(tmp_path: Path) -> None:
    settings = {
        "ssl.keystore.key": SERVER.key_pem,
        "ssl.keystore.certificate.chain": SERVER.chain_pem,
        "ssl.truststore.certificates": CA.pem,
        "ssl.client.auth": "required",
        "ssl.enabled.protocols": "TLSv1.2",
        "listener.name.tls.ssl.client.auth": "requested",
        "listener.name.tls.ssl.principal.mapping.rules": "RULE:a/b/",
    }
    found = listeners(settings).tls["TLS"]
    assert (found.client_auth, found.mapping_rules, found.settings.versions) == ("requested", "RULE:a/b/", ("TLSv1.2",))
    assert found.settings.key_store is not None
    assert found.settings.key_store.chain == (SERVER.der,)


def test_with_sasl_the_client_auth_of_all_does_not_count() -> None:
    """It is what a listener for certificates has; clients that log in have none."""
    settings = INLINE | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.client.auth": "required",
        "ssl.truststore.certificates": CA.pem,
    }
    assert listeners(settings).tls["TLS"].client_auth == "none"
    own = settings | {"listener.name.tls.ssl.client.auth": "required"}
    assert listeners(own).tls["TLS"].client_auth == "required"


def test_pem_on_one_line_and_with_text_around() -> None:
    text = f"Bag Attributes\n  name: x\n{SERVER.chain_pem}\nmore\n{SERVER.key_pem}"
    assert parse_pem(text.encode()) == parse_pem(text.replace("\n", "   ").replace("name: x", "").encode())
    assert parse_pem(text.encode()).certificates == (SERVER.der,)


STORE = "-in STORE.p12 -out STORE.pem` make one of it"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ssl.client.auth": "required"} | INLINE, "listener.name.tls.ssl.client.auth: required needs ssl.truststore."),
        (INLINE | of_listener("tls", keystore_location="/x"), "it and ssl.keystore.key both have a key"),
        (of_listener("tls", keystore_key=SERVER.key_pem), "belong together: give both"),
        (INLINE | of_listener("tls", keystore_key="hidden"), "there are 0 private keys in it, and one is needed"),
        (INLINE | of_listener("tls", keystore_key=SERVER.key_pem * 2), "there are 2 private keys in it"),
        (INLINE | of_listener("tls", keystore_certificate_chain="x"), "chain: there is no certificate in it"),
        (INLINE | of_listener("tls", keystore_key=SERVER.encrypted_key_pem), "so ssl.key.password is needed"),
        (
            INLINE | of_listener("tls", keystore_key=SERVER.encrypted_key_pem, key_password="wrong"),
            "the listener TLS: the private key cannot be used: its password is wrong",
        ),
        (
            INLINE | of_listener("tls", keystore_key=CA.issue("x").key_pem),
            "it does not belong to the first certificate",
        ),
        (INLINE | of_listener("tls", truststore_certificates="x"), "certificates: there is no certificate in it"),
        (of_listener("tls", keystore_location="/there/is/none"), "cannot read /there/is/none: No such file"),
        (INLINE | {"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "no version is left"),
        (INLINE | {"ssl.cipher.suites": "TLS_X"}, "ssl.cipher.suites: TLS_X is none of TLS_AES_128_GCM_SHA256, "),
        (
            INLINE | {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"},
            "of TLS 1.3 all suites or none can be chosen; TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256 is",
        ),
        ({"ssl.keystore.type": "JKS"}, STORE),
        ({"ssl.truststore.type": "PKCS12"}, STORE),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "expected a list of TLSv1.2, TLSv1.3"),
        ({"ssl.client.auth": "maybe"}, "expected one of none, requested, required"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "'RULE:x' is neither DEFAULT nor RULE:pattern/replacement/"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "expected https, or nothing"),
    ],
)
def test_what_cannot_be(settings: dict[str, str], sentence: str) -> None:
    said = refusal(settings)
    assert sentence in said
    for secret in ("hidden", "wrong", SERVER.key_pem.splitlines()[1]):
        assert secret not in said.replace("its password is wrong", "")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", STORE),
        (b"\x30\x82\x09\x01", STORE),
        (b"-----BEGIN PRIVATE KEY-----\nhidden!\n-----END PRIVATE KEY-----", "a block PRIVATE KEY in it is not Base64"),
        (
            b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----",
            "openssl pkcs8 -topk8",
        ),
    ],
)
def test_file_that_is_no_key_store(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(data)
    said = refusal(of_listener("tls", keystore_location=path))
    assert said.startswith(f"listener.name.tls.ssl.keystore.location: {path}: ")
    assert sentence in said
    assert "hidden" not in said


@pytest.mark.parametrize("property_name", ["keystore_location", "truststore_location"])
def test_what_is_no_file_or_too_long_is_not_read(tmp_path: Path, property_name: str) -> None:
    """A client that may alter the location could name a device that never ends."""
    long = tmp_path / "long.pem"
    with long.open("wb") as file:
        file.truncate(1_048_577)
    for path, sentence in (("/dev/null", "it is no file"), (long, "it has more than 1,048,576 bytes")):
        settings = of_listener("tls", keystore_location=SERVER.write(tmp_path / "store.pem"))
        said = refusal(settings | of_listener("tls", **{property_name: path}))
        assert said == f"listener.name.tls.ssl.{property_name.replace('_', '.')}: {path}: {sentence}"


def test_key_that_others_can_read(tmp_path: Path) -> None:
    path = SERVER.write(tmp_path / "store.pem")
    path.chmod(0o640)
    said = refusal(of_listener("tls", keystore_location=path))
    why = f"it has a private key, and {path} can be read by others than its owner; chmod 600 mends that"
    assert said == f"listener.name.tls.ssl.keystore.location: {why}"


def test_secrets_are_not_described() -> None:
    settings = INLINE | of_listener("tls", keystore_key=SERVER.encrypted_key_pem, key_password=PASSWORD)
    settings |= {"ssl.truststore.certificates": CA.pem, "ssl.key.password": PASSWORD}
    config = ServerConfig(BASE | settings)
    found = {entry.name: entry for entry in broker_entries(config)}
    for name in ("listener.name.tls.ssl.key.password", "listener.name.tls.ssl.keystore.key", "ssl.key.password"):
        assert (found[name].value, {each.value for each in found[name].synonyms}) == (None, {None})
    shown = f"{list(found.values())} {Listeners(config).tls}"
    assert PASSWORD not in shown
    assert SERVER.encrypted_key_pem.splitlines()[1] not in shown
