"""SEC29: names that clients choose are text and nothing else: not lines of the log, not controls of a terminal, not
paths, not formats."""

import json
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.ports import free_ports
from tests.served import ServedBroker
from tests.siege.wire import Wire, address_of

NAMES = [
    "a\n2026-11-24T00:00:00Z [info     ] forged",
    "\x1b[2J\x1b]0;title\x07",
    "x" * 10_000,
    "../../etc/passwd",
    "/etc/passwd",
    "%s{0}{name!r}%n",
    "nul\0byte",
    "..",
    "\u202eright to left\u2028",
]
FORGED = "forged"
LINE_CHARACTERS_MAX = 4_000


def broker_with_login(directory: Path, log_format: str) -> tuple[ServedBroker, str, str]:
    plain, login = (f"127.0.0.1:{port}" for port in free_ports(2))
    (directory / "deep").mkdir()
    users = directory / "users"
    users.write_text("alice:wonderland\n")
    users.chmod(0o600)
    settings = {
        "listeners": f"PLAINTEXT://{plain},LOGIN://{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.users.file": str(users),
        "connection.failed.authentication.delay.ms": "0",
        "auto.create.topics.enable": "true",
    }
    arguments = ["--log-level", "debug", "--log-format", log_format]
    return ServedBroker(directory / "deep" / "data", settings, arguments=arguments), plain, login


def claim(login: str, name: str) -> None:
    """To be that user."""
    with Wire(address_of(login), name[:1_000]) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        user = name.replace("\0", "")
        assert wire.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0wrong".encode()), 1).error_code == 58
    with Wire(address_of(login), name[:1_000]) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism=name), 1).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def use(plain: str, name: str) -> None:
    """As client id, topic, group, member and software."""
    with Wire(address_of(plain), name) as wire:
        created = wire.call(CreateTopicsRequest(topics=[_topic(name)], timeout_ms=5_000), 7)
        assert created.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        assert wire.call(asked, 9).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4)
        wire.call(_joining(name), 4)
        software = ApiVersionsRequest(client_software_name=name, client_software_version=name)
        # By KIP-511 letters and digits are a name, however many there are.
        assert wire.call(software, 3).error_code == (0 if name.isalnum() else ErrorCode.INVALID_REQUEST)


def _topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1)


def _joining(name: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=name,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=b"")],
    )


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_hostile_names_are_text_and_nothing_else(tmp_path: Path, log_format: str) -> None:
    served, plain, login = broker_with_login(tmp_path, log_format)
    with served:
        for name in NAMES:
            claim(login, name)
            use(plain, name)
        with Wire(address_of(plain)) as wire:
            assert wire.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9).cluster_id
    lines = served.stderr.split("\n")[:-1]

    assert any(FORGED in line for line in lines), "what was sent is in the log, escaped"
    assert not [line for line in lines if not line.isprintable()]
    assert not [line for line in lines if len(line) > LINE_CHARACTERS_MAX]
    assert not [line for line in lines if not _is_our_own(line, log_format)]
    assert "Traceback" not in served.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"users", "deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"data", "data.stderr"}


def _is_our_own(line: str, log_format: str) -> bool:
    """Begins as a line that the broker has written, and has no second beginning."""
    if log_format == "json":
        return "timestamp" in json.loads(line)
    return line[:2] == "20" and "] " in line and FORGED not in line.split("] ")[1]
