"""`ottla users`: at a broker, and on a data directory without one."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import BrokerThread
from ottla.broker.broker_data import METADATA_FILE
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.updates import applied
from ottla.security.scram_credential import ScramHash, credential_of, decoy, salted_password
from tests.cli.embedded import json_of, output_of, refusal_of, run_at
from tests.cli.runner import run

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_users(broker: BrokerThread) -> Iterator[None]:
    yield
    names = [user["name"] for user in json_of(broker, "users", "list")]
    if names:
        output_of(broker, "users", "delete", *names)


def accepts(image: MetadataImage, user: str, password: str, scram: ScramHash = ScramHash.SHA_256) -> bool:
    kept = image.scram_credentials[scram, user]
    salted = salted_password(scram, password.encode(), kept.salt, kept.iterations)
    return credential_of(scram, kept.salt, salted, kept.iterations) == kept


def image_in(data_dir: Path) -> MetadataImage:
    store = EmbeddedStore(data_dir / METADATA_FILE)
    images: list[MetadataImage] = []
    store.read("", lambda found: images.append(applied(MetadataImage("", NO_LEADER), found).image))  # type: ignore[arg-type]
    store.close()
    return images[0]


# At a broker.


def test_users_are_created_listed_described_and_deleted(broker: BrokerThread) -> None:
    said = output_of(broker, "users", "create", "alice", stdin="secret\n")
    output_of(broker, "user", "create", "bob", "--mechanism", BOTH[1], "--iterations", "8192", stdin="secret")

    assert said == f"created user alice with {', '.join(BOTH)}\n"
    assert output_of(broker, "users", "list") == (
        "USER   MECHANISMS\nalice  SCRAM-SHA-256, SCRAM-SHA-512\nbob    SCRAM-SHA-512\n"
    )
    assert json_of(broker, "users", "describe", "bob") == [
        {"name": "bob", "mechanisms": [{"mechanism": BOTH[1], "iterations": 8192}]}
    ]
    assert output_of(broker, "users", "describe", "bob", "bob").splitlines()[1:] == ["bob   SCRAM-SHA-512        8192"]
    said = output_of(broker, "users", "delete", "alice", "--mechanism", BOTH[0])
    assert said == "deleted user alice with SCRAM-SHA-256\n"
    assert json.loads(output_of(broker, "users", "delete", "alice", "bob", "--json")) == {"deleted": ["alice", "bob"]}
    assert json_of(broker, "users", "list") == []


def test_the_password_that_was_given_is_the_one_that_logs_in(tmp_path: Path) -> None:
    file, data_dir = tmp_path / "password", tmp_path / "data"
    file.write_bytes("pässword \r\n".encode())
    with BrokerThread(data_dir=data_dir) as broker:
        output_of(broker, "users", "create", "alice", "--new-password-file", str(file))
        output_of(broker, "users", "create", "bob", stdin="first")
        refusal = refusal_of(broker, "users", "create", "alice", "--new-password-file", str(file))
        output_of(broker, "users", "create", "bob", "--replace", "--new-password-file", "-", stdin="second")

    image = image_in(data_dir)
    assert refusal == "user alice has a password for SCRAM-SHA-256 already; --replace gives a new one"
    assert all(accepts(image, "alice", "pässword ", scram) for scram in ScramHash)
    assert all(accepts(image, "bob", "second", scram) for scram in ScramHash)
    assert not accepts(image, "alice", "pässword")


def test_a_new_user_looks_like_one_who_does_not_exist(tmp_path: Path) -> None:
    """§56.9: what a login shows before the password is as long, and as often hashed."""
    with BrokerThread(data_dir=tmp_path / "data") as broker:
        output_of(broker, "users", "create", "alice", stdin="secret")
    image = image_in(tmp_path / "data")
    for scram in ScramHash:
        kept, decoyed = image.scram_credentials[scram, "alice"], decoy(scram, image.decoy_secret or b"", "carol")
        assert (len(kept.salt), kept.iterations) == (len(decoyed.salt), decoyed.iterations)


def test_what_the_broker_refuses_is_one_sentence(broker: BrokerThread) -> None:
    output_of(broker, "users", "create", "alice", "--mechanism", BOTH[0], stdin="secret")

    assert refusal_of(broker, "users", "describe", "nemo").startswith("cannot describe user nemo: it does not exist")
    assert refusal_of(broker, "users", "delete", "nemo").startswith("cannot describe user nemo: it does not exist")
    assert refusal_of(broker, "users", "delete", "alice", "--mechanism", BOTH[1]) == (
        "cannot delete user alice: there is no password for SCRAM-SHA-512"
    )
    result = run_at(broker, "users", "create", "ANONYMOUS", stdin="secret")
    assert result.exit_code == 1
    assert "cannot create user ANONYMOUS: " in result.stderr


@pytest.mark.parametrize("stdin", ["", "\n", "two\nlines\n", "x" * 1025])
def test_a_password_that_is_none_is_refused_and_not_shown(broker: BrokerThread, stdin: str) -> None:
    result = run_at(broker, "users", "create", "alice", stdin=stdin)

    assert (result.exit_code, result.stderr.startswith("Error: the password is ")) == (1, True)
    assert "lines" not in result.output
    assert "xxx" not in result.output
    assert json_of(broker, "users", "list") == []


def test_the_password_is_no_argument_of_the_command() -> None:
    assert run("users", "create", "alice", "--password", "secret").exit_code == 2


# On a data directory.


def test_the_first_user_is_there_when_the_first_broker_starts(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    created = run("users", "create", "admin", "--data-dir", str(data_dir), "--json", stdin="secret\n")

    assert json.loads(created.stdout) == {"user": "admin", "mechanisms": BOTH, "iterations": 4096}
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    with BrokerThread(data_dir=data_dir) as broker:
        assert [user["name"] for user in json_of(broker, "users", "list")] == ["admin"]
        refused = run("users", "create", "other", "--data-dir", str(data_dir), stdin="secret")
        assert (refused.exit_code, "stop the broker that runs on it" in refused.stderr) == (1, True)
    image = image_in(data_dir)
    assert set(image.scram_credentials) == {(scram, "admin") for scram in ScramHash}
    assert accepts(image, "admin", "secret")
    assert len(image.decoy_secret) == 32


def test_a_user_of_a_stopped_broker_is_replaced_when_asked_for(tmp_path: Path) -> None:
    with BrokerThread(data_dir=tmp_path) as broker:
        output_of(broker, "users", "create", "admin", "--mechanism", BOTH[0], stdin="first")
    refused = run("users", "create", "admin", "--data-dir", str(tmp_path), stdin="second")
    before = image_in(tmp_path)
    replaced = run("users", "create", "admin", "--replace", "--data-dir", str(tmp_path), stdin="second")
    after = image_in(tmp_path)

    assert (refused.exit_code, replaced.exit_code) == (1, 0)
    assert refused.stderr == ("Error: user admin has a password for SCRAM-SHA-256 already; --replace gives a new one\n")
    assert set(before.scram_credentials) == {(ScramHash.SHA_256, "admin")}
    assert accepts(before, "admin", "first")
    assert all(accepts(after, "admin", "second", scram) for scram in ScramHash)
    with BrokerThread(data_dir=tmp_path):
        pass
    assert image_in(tmp_path).scram_credentials == after.scram_credentials
    assert image_in(tmp_path).decoy_secret == before.decoy_secret != b""


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["meta.properties"], "whose metadata is elsewhere"),
        (["__cluster_metadata-0", "meta.properties"], "Apache Kafka"),
        (["letter.txt"], "it is no data directory"),
    ],
)
def test_another_directory_is_refused_and_left_as_it_is(names: list[str], says: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    result = run("users", "create", "admin", "--data-dir", str(tmp_path), stdin="secret")

    assert (result.exit_code, says in result.stderr) == (1, True), result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_refused_user_leaves_nothing_in_the_directory(tmp_path: Path) -> None:
    result = run("users", "create", "ANONYMOUS", "--data-dir", str(tmp_path), stdin="secret")

    assert (result.exit_code, result.stderr.startswith("Error: cannot create user ANONYMOUS: ")) == (1, True)
    assert not image_in(tmp_path).scram_credentials


def test_broker_and_directory_are_not_named_together(tmp_path: Path) -> None:
    result = run("users", "create", "a", "--data-dir", str(tmp_path), "--bootstrap", "localhost:1", stdin="x")

    assert (result.exit_code, "give either --bootstrap or --data-dir" in result.stderr) == (2, True)
