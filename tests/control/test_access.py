"""Who may control a broker: token, Host, Origin, and what a form of a browser can send."""

from pathlib import Path

import pytest

from ottla.broker.admin.http import HttpRequest
from ottla.broker.config.options import ConfigError
from ottla.testing.control import access
from ottla.testing.control.access import ControlAccess, new_token, parse_control_address, token_of, write_control_file
from ottla.testing.control.problems import Problem
from tests.control.asking import JSON, TOKEN


def refused(given: ControlAccess, method: str = "GET", **headers: str) -> str | None:
    """The end of the problem's type; None where the request may pass."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        given.check(HttpRequest("/v1", {}, {"host": "localhost", **named}, method))
    except Problem as problem:
        return f"{problem.status} {problem.kind}"
    return None


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}0", f"Basic {TOKEN}", f"Bearer {TOKEN.upper()}", "Bearer ü"],
)
def test_wrong_token_is_refused(given: str) -> None:
    assert refused(ControlAccess(TOKEN), authorization=given) == "401 wrong-token"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_token_lets_pass(scheme: str) -> None:
    assert refused(ControlAccess(TOKEN), authorization=f"{scheme} {TOKEN}") is None


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def noting(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return False

    monkeypatch.setattr(access.hmac, "compare_digest", noting)

    assert refused(ControlAccess(TOKEN), authorization=f"Bearer {TOKEN}") == "401 wrong-token"
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:9098", "LOCALHOST", "localhost.:1", "127.0.0.1:9098", "[::1]:9098", "10.1.2.3", "kafka:1"],
)
def test_own_names_and_addresses_are_hosts(host: str) -> None:
    assert refused(ControlAccess(None, frozenset({"kafka"})), host=host) is None


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:9098", "localhost.evil.example", "127.0.0.1.evil"])
def test_foreign_hosts_are_refused(host: str) -> None:
    assert refused(ControlAccess(TOKEN), host=host, authorization=f"Bearer {TOKEN}") == "403 foreign-host"


def test_unix_socket_needs_no_host_of_its_own() -> None:
    assert refused(ControlAccess(None, is_unix=True), host="whatever") is None


@pytest.mark.parametrize("origin", ["http://localhost", "null", "https://evil.example", ""])
@pytest.mark.parametrize("is_unix", [False, True])
def test_request_with_an_origin_is_refused(origin: str, is_unix: bool) -> None:
    given = ControlAccess(None, is_unix=is_unix)

    assert refused(given, origin=origin) == "403 foreign-origin"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize(
    "kind",
    ["", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "application/jsonx"],
)
def test_what_a_form_can_send_is_refused(method: str, kind: str) -> None:
    assert refused(ControlAccess(None), method, content_type=kind) == "415 not-json"


@pytest.mark.parametrize("kind", [JSON, f"{JSON}; charset=utf-8", "Application/JSON"])
def test_json_is_taken(kind: str) -> None:
    assert refused(ControlAccess(None), "POST", content_type=kind) is None


def test_tokens_have_128_bits_and_differ() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert len(bytes.fromhex(new_token())) == 16


@pytest.mark.parametrize("token", ["", "short", "x" * 21, "with a blank in the token it has", "ü" * 32])
def test_weak_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="OTTLA_CONTROL_TOKEN: expected 128 bits") as caught:
        token_of({"OTTLA_CONTROL_TOKEN": token})

    assert not token or token not in str(caught.value)


def test_token_may_be_absent_or_given() -> None:
    assert (token_of({}), token_of({"OTTLA_CONTROL_TOKEN": TOKEN})) == (None, TOKEN)


def test_addresses_are_ports_and_paths() -> None:
    assert parse_control_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_control_address("unix:/tmp/c") == Path("/tmp/c")
    for wrong in ("unix:", "9098", "127.0.0.1:x"):
        with pytest.raises(ValueError, match=r"is not HOST:PORT|names no path"):
            parse_control_address(wrong)


def test_control_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    path.write_text("of others")
    path.chmod(0o644)

    write_control_file(path, "http://127.0.0.1:1", TOKEN, "127.0.0.1:2")

    assert path.stat().st_mode & 0o777 == 0o600
    assert TOKEN in path.read_text()
    assert list(tmp_path.iterdir()) == [path]
