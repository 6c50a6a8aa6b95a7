"""`ottla secure DIR`: what the containers of compose.secure.yaml, and a cluster by hand, get their keys from."""

import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.broker.config.client_properties import ClientProperties
from ottla.cli.app import cli

FILES = ["admin.password", "broker.password", "broker.pem", "ca-key.pem", "ca.pem"]
CLIENTS = ["client.properties", "librdkafka.properties"]


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["secure", *map(str, arguments)])
    return result.exit_code, result.output


def test_all_is_made_and_taken_again(tmp_path: Path) -> None:
    directory = tmp_path / "dev"
    status, said = run(directory, "--host", "etcd", "--host", "ottla1", "--advertise", "a:1,b:2")
    first = {each.name: each.read_bytes() for each in directory.iterdir()}

    assert status == 0
    assert [line.strip() for line in said.splitlines()[1:]] == sorted(FILES + CLIENTS)
    assert (directory.stat().st_mode & 0o777, sorted(first)) == (0o700, sorted(FILES + CLIENTS))
    assert [str(each) for each in ClientProperties.read(directory / "client.properties").bootstrap or ()] == [
        "a:1",
        "b:2",
    ]
    assert run(directory, "--host", "ottla1", "--advertise", "a:1,b:2")[0] == 0
    assert {each.name: each.read_bytes() for each in directory.iterdir()} == first
    assert not [name for name in FILES if "password" in name and first[name].decode().strip() in said]


def test_the_certificate_serves_both_sides_of_a_handshake(tmp_path: Path) -> None:
    run(tmp_path / "dev", "--host", "ottla1")
    ca, broker = tmp_path / "dev" / "ca.pem", tmp_path / "dev" / "broker.pem"
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (server, client):
        context.load_verify_locations(ca)
        context.load_cert_chain(broker)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="ottla1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for side in sides * 2:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue

    assert all(side.getpeercert() for side in sides)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--advertise", "nowhere"), "'nowhere' is not HOST:PORT"),
        (("--host", "höst"), "no certificate can name all of"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    status, said = run(tmp_path / "dev", *arguments)
    assert status != 0
    assert sentence in said


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "notes.txt").write_text("mine")
    status, said = run(tmp_path)
    assert (status, said.splitlines()[-1]) == (
        1,
        f"Error: {tmp_path} is not empty, and holds no ca.pem: --secure needs a directory of its own",
    )
