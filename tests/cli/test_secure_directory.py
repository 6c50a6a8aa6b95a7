"""What `ottla serve --secure` makes, takes again, and refuses, without a broker."""

import datetime
import ssl
import sys
from pathlib import Path

import pytest
from cryptography import x509

from ottla.broker.config.client_properties import ClientProperties
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.runtime import StartError
from ottla.cli.login import read_tls
from ottla.cli.operations import development_ca
from ottla.cli.operations.development_ca import BrokenCa, DevelopmentCa
from ottla.cli.operations.first_user import scram_credentials_in, store_users
from ottla.cli.operations.secure_directory import SecureDirectory, with_values
from ottla.cli.operations.secure_serve import SecureServe, refuse_properties
from ottla.cli.operations.serve import ServeOptions, run
from ottla.cli.operations.users import salted_upsertion
from ottla.security.client import Secret
from ottla.security.scram_credential import ITERATIONS_MIN, ScramHash
from tests.broker.wire import RecordingLog

HOSTS = ["localhost", "127.0.0.1", "::1"]
FILES = ["admin.password", "broker.password", "broker.pem", "ca-key.pem", "ca.pem"]
CLIENTS = ["client.properties", "librdkafka.properties"]


def opened(path: Path, *hosts: str) -> SecureDirectory:
    directory = SecureDirectory(path)
    directory.open([*HOSTS, *hosts])
    return directory


def refusal(path: Path) -> str:
    with pytest.raises(StartError) as refused:
        opened(path)
    return str(refused.value)


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(path.iterdir())}


def names_in(path: Path) -> list[object]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return [each.value for each in certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]


def test_only_the_owner_can_open_what_is_made(tmp_path: Path) -> None:
    opened(tmp_path / "new" / "dev").write_client_files("127.0.0.1:1")
    made = tmp_path / "new" / "dev"

    assert sorted(contents(made)) == sorted(FILES + CLIENTS)
    assert made.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in made.iterdir()} == {0o600}


def test_passwords_are_long_and_differ(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "a"), opened(tmp_path / "b")
    passwords = {each.reveal() for directory in (first, second) for each in directory.passwords.values()}

    assert len(passwords) == 4
    assert {len(each) for each in passwords} == {32}


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    opened(tmp_path / "dev").write_client_files("127.0.0.1:1")
    made = contents(tmp_path / "dev")
    opened(tmp_path / "dev").write_client_files("127.0.0.1:1")

    assert contents(tmp_path / "dev") == made


def test_another_host_gets_another_certificate_alone(tmp_path: Path) -> None:
    opened(tmp_path / "dev")
    made = contents(tmp_path / "dev")
    opened(tmp_path / "dev", "broker.example")
    now = contents(tmp_path / "dev")

    assert [name for name in now if now[name] != made[name]] == ["broker.pem"]
    assert names_in(tmp_path / "dev" / "broker.pem")[-1] == "broker.example"


def test_lost_certificate_is_made_again(tmp_path: Path) -> None:
    opened(tmp_path / "dev")
    (tmp_path / "dev" / "broker.pem").unlink()
    opened(tmp_path / "dev")

    assert (tmp_path / "dev" / "broker.pem").exists()


def test_a_reader_s_own_lines_stay_in_clients_files(tmp_path: Path) -> None:
    opened(tmp_path / "dev").write_client_files("127.0.0.1:1")
    path = tmp_path / "dev" / "client.properties"
    path.write_text(path.read_text() + "request.timeout.ms=5000\n")
    before = path.read_text()
    opened(tmp_path / "dev").write_client_files("127.0.0.1:2")

    assert path.read_text() == before.replace("127.0.0.1:1", "127.0.0.1:2")


def test_values_replace_those_of_their_names_alone() -> None:
    assert with_values("a=1\nab=2\n# a=3\nb", {"a": "9", "c": "8"}) == "a=9\nab=2\n# a=3\nb"


def test_the_properties_for_clients_are_understood(tmp_path: Path) -> None:
    directory = opened(tmp_path / "dev")
    directory.write_client_files("127.0.0.1:1,127.0.0.1:2")
    properties = ClientProperties.read(tmp_path / "dev" / "client.properties")
    lines = (tmp_path / "dev" / "librdkafka.properties").read_text().splitlines()
    context = read_tls({}, properties)

    assert properties.login is not None
    assert (properties.login.user, properties.login.password) == ("admin", directory.passwords["admin"])
    assert properties.without_meaning == []
    assert context is not None
    assert context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert((tmp_path / "dev/ca.pem").read_text())]
    assert dict(line.split("=", 1) for line in lines)["bootstrap.servers"] == "127.0.0.1:1,127.0.0.1:2"


@pytest.mark.parametrize("name", ["ca-key.pem", "broker.pem", "admin.password", "broker.password", *CLIENTS])
def test_file_that_others_can_read_is_refused(name: str, tmp_path: Path) -> None:
    opened(tmp_path / "dev").write_client_files("127.0.0.1:1")
    (tmp_path / "dev" / name).chmod(0o640)

    assert refusal(tmp_path / "dev") == (
        f"{tmp_path}/dev/{name} can be read by others than its owner; chmod 600 mends that"
    )


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_directory_that_others_can_open_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev").chmod(mode)

    assert refusal(tmp_path / "dev") == f"{tmp_path}/dev can be read by others than its owner; chmod 700 mends that"
    assert contents(tmp_path / "dev") == {}


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem", "admin.password", "broker.password"])
def test_directory_that_has_lost_a_file_is_refused(name: str, tmp_path: Path) -> None:
    opened(tmp_path / "dev")
    (tmp_path / "dev" / name).unlink()

    assert refusal(tmp_path / "dev").startswith(f"{tmp_path}/dev has lost {name}: put it back, or delete")


def test_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir(0o700)
    (tmp_path / "dev" / "mine").write_text("")
    (tmp_path / "file").write_text("")

    assert refusal(tmp_path / "dev").endswith(
        "is not empty, and holds no ca.pem: --secure needs a directory of its own"
    )
    assert refusal(tmp_path / "file") == f"{tmp_path}/file is no directory"
    assert refusal(tmp_path / "file" / "dev") == f"cannot use {tmp_path}/file/dev: it is not a directory"


def broken(directory: Path, name: str, text: str) -> str:
    (directory / name).write_text(text)
    return refusal(directory).removeprefix(f"{directory}/")


def test_what_is_broken_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "dev")
    good, other = contents(tmp_path / "dev"), DevelopmentCa.make()
    own = opened(tmp_path / "dev")
    foreign = other.issue(HOSTS).decode()
    again = "; delete it, and it is made again"

    assert broken(own.path, "broker.pem", "x") == f"broker.pem has no certificate in PEM{again}"
    assert broken(own.path, "broker.pem", foreign) == (
        f"broker.pem has a certificate that another authority has signed{again}"
    )
    own.file("broker.pem").write_bytes(good["broker.pem"])
    assert broken(own.path, "ca.pem", "x").startswith("ca.pem, with ca-key.pem, is no pair of a private key and")
    assert broken(own.path, "ca.pem", other.pem.decode()).startswith(
        "ca.pem, with ca-key.pem, has a private key that does not belong to the certificate; delete the directory"
    )
    own.file("ca.pem").write_bytes(good["ca.pem"])
    for password in ("", "\n", "a b", 'a"', "a\\", "a\nb\n", "ä"):
        assert broken(own.path, "admin.password", password).startswith("admin.password is not one line of ASCII signs")
    secret = good["admin.password"].decode()
    assert secret.strip() not in broken(own.path, "admin.password", secret * 2)


def test_certificate_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ca, now = DevelopmentCa.make(), datetime.datetime.now(datetime.UTC)
    pem = ca.issue(HOSTS)

    assert ca.is_good(pem, HOSTS)
    assert not ca.is_good(pem, ["elsewhere.example"])
    monkeypatch.setattr(development_ca, "_now", lambda: now + datetime.timedelta(days=336))
    assert not ca.is_good(pem, HOSTS)
    assert DevelopmentCa.read(ca.key_pem, ca.pem).pem == ca.pem
    monkeypatch.setattr(development_ca, "_now", lambda: now + datetime.timedelta(days=3651))
    with pytest.raises(BrokenCa, match=r"^has expired at \d{4}-\d\d-\d\d$"):
        DevelopmentCa.read(ca.key_pem, ca.pem)


# With `serve`.


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("listeners", "A://:1", "listeners: with --secure, --listen and --advertise say where the one listener is"),
        ("advertised.listeners", "A://h:1", "advertised.listeners: with --secure, --listen and --advertise say"),
        ("super.users", "User:a", "super.users: --secure sets it; give one of them"),
        ("ssl.keystore.location", "f", "ssl.keystore.location: --secure sets it"),
        ("listener.name.sasl_ssl.ssl.keystore.key", "k", "listener.name.sasl_ssl.ssl.keystore.key: --secure sets it"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", "j", "listener.name.sasl_ssl.plain.sasl.jaas.config: --"),
    ],
)
def test_properties_that_contradict_it_are_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_properties(ServerConfig({name: value}))
    assert str(refused.value).startswith(sentence)


def test_other_properties_go_with_it() -> None:
    refuse_properties(
        ServerConfig({"listener.name.sasl_ssl.connections.max.reauth.ms": "9", "ssl.enabled.protocols": "TLSv1.3"})
    )


def test_refused_properties_make_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ServeOptions(secure=str(tmp_path / "dev"), ephemeral=True, settings=("super.users=User:a",))

    assert run(options) == 1
    assert capsys.readouterr().err == "ottla: super.users: --secure sets it; give one of them\n"
    assert not (tmp_path / "dev").exists()


def test_directory_in_the_data_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ServeOptions(secure=str(tmp_path / "data/dev"), data_dir=str(tmp_path / "data"))) == 1
    assert capsys.readouterr().err == (
        f"ottla: --secure {tmp_path}/data/dev is in the data directory, which holds nothing but data\n"
    )


def test_host_that_no_certificate_names_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ServeOptions(secure=str(tmp_path / "dev"), advertise="brökér:1", ephemeral=True)) == 1
    assert capsys.readouterr().err.endswith(", brökér\n")


def test_missing_package_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for name in ("development_ca", "secure_directory", "secure_serve"):
        monkeypatch.delitem(sys.modules, f"ottla.cli.operations.{name}")

    assert run(ServeOptions(secure=str(tmp_path / "dev"), ephemeral=True)) == 1
    assert capsys.readouterr().err == (
        "ottla: --secure needs cryptography, which comes with: pip install 'ottla[secure]'\n"
    )


# Users.


def secure(tmp_path: Path) -> SecureServe:
    return SecureServe.open(tmp_path / "dev", tmp_path / "data", listen=None, advertise=None)


def give(data_dir: Path, user: str, password: str) -> None:
    wanted = salted_upsertion(user, ScramHash.SHA_512, ITERATIONS_MIN, Secret(password))
    store_users(data_dir, [wanted], replaces=True)


def said(serve: SecureServe) -> str:
    return "\n".join(serve.ready("127.0.0.1:1", RecordingLog()))


def test_users_are_written_once(tmp_path: Path) -> None:
    secure(tmp_path).store_users(tmp_path / "data")
    first = scram_credentials_in(tmp_path / "data")
    second = secure(tmp_path)
    second.store_users(tmp_path / "data")

    assert sorted(user for _, user in first) == ["admin", "broker"]
    assert {scram for scram, _ in first} == {ScramHash.SHA_512}
    assert scram_credentials_in(tmp_path / "data") == first
    assert "has another password" not in said(second)


def test_administrators_new_password_stays_and_is_said(tmp_path: Path) -> None:
    secure(tmp_path).store_users(tmp_path / "data")
    give(tmp_path / "data", "admin", "changed")
    changed = scram_credentials_in(tmp_path / "data")
    second = secure(tmp_path)
    second.store_users(tmp_path / "data")

    assert scram_credentials_in(tmp_path / "data") == changed
    assert "user admin has another password than the files say, or none; with the broker stopped, " in said(second)


def test_brokers_without_their_password_are_refused(tmp_path: Path) -> None:
    secure(tmp_path).store_users(tmp_path / "data")
    give(tmp_path / "data", "broker", "changed")

    with pytest.raises(StartError) as refused:
        secure(tmp_path).store_users(tmp_path / "data")
    assert str(refused.value) == (
        f"user broker in {tmp_path}/data has another password than the file for it; `ottla users create broker "
        f"--replace --data-dir {tmp_path}/data --new-password-file {tmp_path}/dev/broker.password` gives it that one"
    )


def test_users_of_a_directory_in_use_stay(tmp_path: Path) -> None:
    give(tmp_path / "data", "admin", "earlier")
    earlier = scram_credentials_in(tmp_path / "data")
    serve = secure(tmp_path)
    serve.store_users(tmp_path / "data")
    now = scram_credentials_in(tmp_path / "data")

    assert now[ScramHash.SHA_512, "admin"] == earlier[ScramHash.SHA_512, "admin"]
    assert (ScramHash.SHA_512, "broker") in now
    assert "user admin has another password" in said(serve)
