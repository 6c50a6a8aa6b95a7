"""compose.secure.yaml brought up: who gets in, and that a broker that is killed holds up no client."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from ottla.cli.app import cli
from tests.docker.engine import build_image, docker
from tests.docker.mini_cluster import BROKERS, NO_COMPOSE, MiniCluster, compose_commands
from tests.waiting import wait_for

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

FILES = ("compose.yaml", "compose.secure.yaml")
USER_WITHIN_S = 60
RECORDS = 200
TOPIC = "orders"


class SecureCluster(MiniCluster):
    """`client` are librdkafka's properties, as the volume has them, with the authority in a file of this machine."""

    client: dict[str, str]

    def fetch_client_files(self) -> None:
        text = self.read("librdkafka.properties")
        self.client = dict(line.split("=", 1) for line in text.splitlines())
        authority = self.directory / "ca.pem"
        authority.write_text(self.read("ca.pem"))
        self.client["ssl.ca.location"] = str(authority)

    def read(self, name: str) -> str:
        return self.inside("ottla1", "cat", f"/secure/{name}")

    def inside(self, service: str, *command: str) -> str:
        return self.compose("exec", "-T", service, *command)

    def admin(self) -> AdminClient:
        return AdminClient({**self.client, "log_level": 2})

    def wait_for_user(self) -> None:
        wait_for(lambda: self.problem(self.client) is None, USER_WITHIN_S, "admin cannot log in")

    def problem(self, properties: dict[str, str]) -> str | None:
        """Why a client with these properties does not get in; None: it does."""
        said: list[str] = []
        client = AdminClient({**properties, "log_level": 2, "error_cb": lambda error: said.append(error.str())})
        try:
            client.list_topics(timeout=5)
        except KafkaException as error:
            # What it has met on the way comes with this.
            client.poll(0)
            return " ".join([*said, str(error)])
        return None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    build_image()
    commands = compose_commands()
    if not commands:
        pytest.skip(NO_COMPOSE)
    cluster = SecureCluster(commands[0], tmp_path_factory.mktemp("secure-cluster"), FILES)
    try:
        cluster.up()
        cluster.fetch_client_files()
        cluster.wait_for_user()
        yield cluster
    finally:
        cluster.down()


def test_every_compose_that_is_installed_reads_both_files(tmp_path: Path) -> None:
    commands = compose_commands()
    if not commands:
        pytest.skip(NO_COMPOSE)
    for command in commands:
        services = MiniCluster(command, tmp_path, FILES).compose("config", "--services").split()
        assert {"secure", "users", "etcd", *BROKERS} <= set(services)


def test_clients_with_the_password_get_in_and_others_do_not(cluster: SecureCluster) -> None:
    assert cluster.problem(cluster.client) is None
    wrong = cluster.problem({**cluster.client, "sasl.password": "wrong"})
    assert wrong is not None
    assert "uthentication failed" in wrong
    assert cluster.problem({"bootstrap.servers": cluster.bootstrap}) is not None
    stranger = {key: value for key, value in cluster.client.items() if key != "ssl.ca.location"}
    assert "certificate verify failed" in (cluster.problem(stranger) or "")


def test_what_is_inside_is_closed_without_a_certificate(cluster: SecureCluster) -> None:
    """etcd, and the listener of the brokers; each of them opens with one."""
    asking = "import urllib.request as u, ssl; c = ssl.create_default_context(cafile='/secure/ca.pem')\n"
    showing = "c.load_cert_chain('/secure/broker.pem')\n"
    version = "print(u.urlopen('https://etcd:2379/version', context=c).read())"
    ping = ("ottla", "ping", "--bootstrap", "ottla2:9093", "--ca", "/secure/ca.pem")

    assert "etcdserver" in cluster.inside("ottla1", "python", "-c", asking + showing + version)
    cluster.inside("ottla1", *ping, "--cert", "/secure/broker.pem")
    for command in (("python", "-c", asking + version), ping):
        with pytest.raises(AssertionError, match="certificate"):
            cluster.inside("ottla1", *command)


def test_commands_in_the_containers_say_that_all_is_well(cluster: SecureCluster) -> None:
    properties = ("--command-config", "/secure/client.properties", "--bootstrap", "ottla1:9092")
    cluster.wait_until_whole()

    assert "healthy" in cluster.inside("ottla2", "ottla", "cluster", "health", *properties)
    assert cluster.inside("ottla2", "ottla", "users", "list", *properties).split()[-2:] == ["admin", "SCRAM-SHA-512"]


def test_a_command_on_this_machine_needs_only_the_file(cluster: SecureCluster) -> None:
    properties = cluster.directory / "client.properties"
    properties.write_text(cluster.read("client.properties"))
    done = CliRunner().invoke(cli, ["topics", "create", "by-hand", "--command-config", str(properties)])

    assert (done.exit_code, done.stdout) == (0, "created topic by-hand\n"), done.output


def test_a_killed_broker_holds_up_no_client(cluster: SecureCluster) -> None:
    cluster.create_topic(TOPIC, 3, 3)
    cluster.wait_until_whole()
    producer = Producer({**cluster.client, "acks": "all", "log_level": 2})
    failures: list[str] = []

    def produce(first: int) -> None:
        for number in range(first, first + RECORDS // 2):
            producer.produce(
                TOPIC, str(number), on_delivery=lambda error, _: failures.append(str(error)) if error else None
            )
            producer.poll(0)

    produce(0)
    assert producer.flush(60) == 0
    cluster.kill("ottla1")
    produce(RECORDS // 2)
    assert producer.flush(60) == 0
    assert read_all(cluster) == {str(number) for number in range(RECORDS)}
    assert not failures
    cluster.start("ottla1")
    cluster.wait_until_whole()


def read_all(cluster: SecureCluster) -> set[str]:
    consumer = Consumer({**cluster.client, "group.id": "shop", "auto.offset.reset": "earliest", "log_level": 2})
    consumer.subscribe([TOPIC])
    seen: set[str] = set()

    def has_all() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add((message.value() or b"").decode())
        return len(seen) == RECORDS

    try:
        wait_for(has_all, 60, lambda: f"{len(seen)} of {RECORDS} records were read")
    finally:
        consumer.close()
    return seen


def test_coming_up_again_keeps_keys_and_passwords(cluster: SecureCluster) -> None:
    authority, client = cluster.read("ca.pem"), cluster.read("client.properties")
    cluster.compose("up", "--detach", "--no-build")
    for broker in BROKERS:
        cluster.start(broker)

    assert (cluster.read("ca.pem"), cluster.read("client.properties")) == (authority, client)
    assert cluster.problem(cluster.client) is None


def test_no_container_shows_a_secret(cluster: SecureCluster) -> None:
    password = cluster.client["sasl.password"]
    for service in ("etcd", *BROKERS):
        assert password not in cluster.logs(service)
    names = docker("ps", "--all", "--quiet", "--filter", f"network={cluster.network}").split()
    shown = subprocess.run(["docker", "inspect", *names], capture_output=True, text=True, check=True).stdout
    assert password not in shown
