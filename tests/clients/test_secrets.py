"""SEC28: a broker is given twenty secrets, logged in to with them, asked for everything, killed and started again, all
with debug logs; then everything that it wrote or answered is searched for them."""

import hashlib
import json
import signal
import socket
import time
import urllib.request
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as confluent

from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.cli.runner import run
from tests.ports import free_ports
from tests.security.tokens import AUDIENCE, ISSUER, claims, key_set, public_jwk, token
from tests.served import ServedBroker
from tests.siege.wire import Wire, address_of
from tests.tls.certificates import PASSWORD as KEY_PASSWORD
from tests.tls.certificates import Authority

WAIT_S = 20
MODULE = "org.apache.kafka.common.security"
# Each a text that nothing else contains.
PASSWORDS = {
    name: f"secret-of-{name}-7f3a"
    for name in (
        "alice", "bob", "carol", "broker", "wrong-plain", "wrong-scram", "altered", "unknown-property", "four-parts",
        "two-parts", "no-utf-8", "etcd", "admin-token", "bare",
    )
}  # fmt: skip


class Hunted:
    """The broker, its secrets, and all that was seen of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plain, self.ext, self.inside, self.admin = (f"127.0.0.1:{port}" for port in free_ports(4))
        self.authority = Authority()
        self.key = self.authority.issue("broker")
        now_s = int(time.time())
        self.token = token(claims(iat=now_s, exp=now_s + 300))
        self.expired = token(claims(iat=now_s - 600, exp=now_s - 300))
        self.secrets = [
            *PASSWORDS.values(),
            KEY_PASSWORD,
            self.token.split(".")[2],
            self.expired.split(".")[2],
            *(self.key.encrypted_key_pem.splitlines()[line] for line in (1, 2)),
            self.key.chain_pem.splitlines()[1],
        ]
        self.seen: dict[str, str] = {}
        """By where it was seen."""
        config = directory / "broker.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        config.chmod(0o600)
        arguments = ["--config", str(config), "--log-level", "debug", "--log-format", "json"]
        # The properties have the listeners.
        self.served = ServedBroker(directory / "data", {"listeners": self._listeners()}, arguments=arguments)

    def _listeners(self) -> str:
        return f"PLAINTEXT://{self.plain},EXT://{self.ext},INSIDE://{self.inside}"

    def _properties(self) -> dict[str, str]:
        users, keys, tokens = (self.directory / name for name in ("users", "keys.json", "tokens"))
        _write_secret(users, f"bob:{PASSWORDS['bob']}\n")
        keys.write_bytes(key_set(public_jwk("RSA")))
        digest = hashlib.sha256(PASSWORDS["admin-token"].encode()).hexdigest()
        _write_secret(tokens, f"somebody operator {digest}\n")
        login = f'username="broker" password="{PASSWORDS["broker"]}"'
        return {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SASL_SSL,INSIDE:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.ext.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {login} "
            f'user_alice="{PASSWORDS["alice"]}";',
            "listener.name.ext.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required {login};",
            "listener.name.inside.plain.users.file": str(users),
            "listener.name.ext.ssl.keystore.key": self.key.encrypted_key_pem.replace("\n", "\\n"),
            "listener.name.ext.ssl.keystore.certificate.chain": self.key.chain_pem.replace("\n", "\\n"),
            "ssl.key.password": KEY_PASSWORD,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "ottla.admin.listener": self.admin,
            "ottla.admin.tokens.file": str(tokens),
            "ottla.events.enable": "true",
        }

    def note(self, where: str, what: object) -> None:
        self.seen[where] = self.seen.get(where, "") + str(what)

    def leaks(self) -> list[str]:
        """Secrets may be in the files that were given to the broker, and nowhere else."""
        self.note("log", self.served.stderr)
        for path in (self.directory / "data").rglob("*"):
            if path.is_file():
                self.note(f"file {path.name}", path.read_bytes().decode("latin-1"))
        return [
            f"{secret} in {where}" for secret in self.secrets for where, what in self.seen.items() if secret in what
        ]


def _write_secret(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def admin_of(hunted: Hunted) -> confluent.AdminClient:
    return confluent.AdminClient({"bootstrap.servers": hunted.plain})


def heard_of_login(hunted: Hunted, mechanism: str, user: str, password: str) -> str:
    """What a client says that logs in at the listener with TLS; empty: it is in."""
    heard: list[str] = []
    authority = hunted.authority.write(hunted.directory / "ca.pem")
    client = confluent.AdminClient(
        {
            "bootstrap.servers": hunted.ext,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": lambda error: heard.append(error.str()),
            **({"oauth_cb": lambda _: (password, time.time() + 300)} if mechanism == "OAUTHBEARER" else {}),
        }
    )
    try:
        client.list_topics(timeout=WAIT_S if password not in _refused(hunted) else 3)
    except KafkaException as error:
        client.poll(0)
        return " ".join([*heard, str(error)])
    return ""


def _refused(hunted: Hunted) -> set[str]:
    return {PASSWORDS["wrong-plain"], PASSWORDS["wrong-scram"], hunted.expired}


def log_in_with_them_and_with_wrong_ones(hunted: Hunted) -> None:
    password = hunted.directory / "carol"
    _write_secret(password, PASSWORDS["carol"])
    made = run("users", "create", "carol", "--new-password-file", str(password), "--bootstrap", hunted.plain)
    assert made.exit_code == 0, made.output
    for mechanism, user, secret in (
        ("PLAIN", "alice", PASSWORDS["alice"]),
        ("SCRAM-SHA-512", "carol", PASSWORDS["carol"]),
        ("OAUTHBEARER", "", hunted.token),
    ):
        assert heard_of_login(hunted, mechanism, user, secret) == "", mechanism
    for mechanism, user, secret in (
        ("PLAIN", "alice", PASSWORDS["wrong-plain"]),
        ("SCRAM-SHA-512", "carol", PASSWORDS["wrong-scram"]),
        ("OAUTHBEARER", "", hunted.expired),
    ):
        heard = heard_of_login(hunted, mechanism, user, secret)
        assert heard, mechanism
        hunted.note("what clients hear", heard)


def send_malformed_tokens(hunted: Hunted) -> None:
    for malformed in (
        f"\0alice\0{PASSWORDS['four-parts']}\0x".encode(),
        f"admin\0bob\0{PASSWORDS['bob']}".encode(),
        f"\0alice\0{PASSWORDS['no-utf-8']}".encode() + b"\xff",
        f"\0{PASSWORDS['two-parts']}".encode(),
    ):
        with Wire(address_of(hunted.inside)) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            answer = wire.call(SaslAuthenticateRequest(auth_bytes=malformed), 1)
        assert answer.error_code == 58
        hunted.note("answers", answer)


def send_what_is_no_frame(hunted: Hunted) -> None:
    for address in (hunted.plain, hunted.inside, hunted.ext):
        with socket.create_connection(address_of(address), WAIT_S) as connection:
            connection.sendall(f"GET /?password={PASSWORDS['bare']} HTTP/1.1\r\n\r\n".encode())
            while piece := connection.recv(4096):
                hunted.note("answers", piece.decode("latin-1"))


def describe_configs_and_alter_secrets(hunted: Hunted) -> None:
    admin = admin_of(hunted)
    resource = confluent.ConfigResource(confluent.ConfigResource.Type.BROKER, "0")
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    hunted.note("DescribeConfigs", [(each.name, each.value, each.synonyms) for each in found.values()])
    assert "listener.name.ext.plain.sasl.jaas.config" in hunted.seen["DescribeConfigs"]
    for name, secret in (
        ("listener.name.ext.plain.sasl.jaas.config", PASSWORDS["altered"]),
        ("ssl.key.password", PASSWORDS["altered"]),
        ("ottla.metadata.etcd.password", PASSWORDS["etcd"]),
        ("some.vault.password", PASSWORDS["unknown-property"]),
    ):
        entry = confluent.ConfigEntry(name, secret, incremental_operation=confluent.AlterConfigOpType.SET)
        wanted = confluent.ConfigResource(confluent.ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
        with pytest.raises(KafkaException) as raised:
            admin.incremental_alter_configs([wanted])[wanted].result(WAIT_S)
        assert name in str(raised.value)
        hunted.note("what clients hear", raised.value)


def read_pages_and_events(hunted: Hunted) -> None:
    for page in ("metrics", "health/ready", "api/v1/node/connections", "api/v1/node/members", "api/v1/node/requests"):
        request = urllib.request.Request(f"http://{hunted.admin}/{page}")
        request.add_header("Authorization", f"Bearer {PASSWORDS['admin-token']}")
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            hunted.note("pages", answer.read().decode())
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": hunted.plain, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["ottla.events"])
    for _ in range(10):
        message = reader.poll(1)
        if message is not None and message.error() is None:
            hunted.note("events", message.value())
    reader.close()


def look_at_the_process_and_crash_it(hunted: Hunted) -> None:
    process = Path(f"/proc/{hunted.served.pid}")
    for name in ("cmdline", "comm"):
        hunted.note(name, (process / name).read_text())
    hunted.served.stop(signal.SIGABRT)
    hunted.served.start()
    assert admin_of(hunted).list_topics(timeout=WAIT_S).brokers


@pytest.mark.slow
def test_no_secret_is_written_or_answered(tmp_path: Path) -> None:
    hunted = Hunted(tmp_path)
    with hunted.served:
        log_in_with_them_and_with_wrong_ones(hunted)
        send_malformed_tokens(hunted)
        send_what_is_no_frame(hunted)
        describe_configs_and_alter_secrets(hunted)
        read_pages_and_events(hunted)
        look_at_the_process_and_crash_it(hunted)
    levels = {json.loads(line).get("level") for line in hunted.served.stderr.splitlines() if line.startswith("{")}

    assert "debug" in levels
    assert {"what clients hear", "answers", "DescribeConfigs", "pages", "cmdline"} <= set(hunted.seen)
    assert len(hunted.secrets) == 20
    assert hunted.leaks() == []
