"""What README and the documents give to paste works, or says here why no test pastes it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.admin.health import DISK_FREE_RATIO_MIN
from tests.docker.engine import build_image, docker, wait_until_healthy
from tests.docs.pasting import Block, block, blocks, paste, run_pytest, run_python, served_arguments
from tests.ports import free_ports
from tests.served import ServedBroker

README, CLI, CLUSTERS = "README.md", "docs/cli.md", "docs/clusters.md"
CLUSTER_FAULTS = "docs/cluster-faults.md"
BROKER_TIME, SCRIPTS = "docs/broker-time.md", "docs/scripts.md"
TESTING, MONITORING, CLIENTS = "docs/testing.md", "docs/monitoring.md", "docs/clients"
ISOLATION = "docs/isolation.md"
TESTS_OF_ISOLATION = (
    "from confluent_kafka import Producer\n\n\ndef bill",
    "from confluent_kafka import Producer\n\n\ndef send",
    "from confluent_kafka import Producer\n\n\ndef test_an_order_is_written_once",
    "from hypothesis import given",
)
SECURITY, CONTROL = "docs/security.md", "docs/control.md"
# Of blocks that are files of tests, in the order of the page.
TESTS_OF_TESTING = (
    "from confluent_kafka import Consumer, Producer\n",
    "from confluent_kafka import Consumer\n",
    "import pytest\n",
    "from confluent_kafka import Producer\nfrom ottla.testing.faults import Drop",
    "from ottla.testing import broker_fixture\n",
    "def test_acknowledged_orders",
)
TESTS_OF_CLUSTER_FAULTS = (
    "import pytest\nfrom confluent_kafka import Producer\n\n\n@",
    "import pytest\nfrom confluent_kafka import Producer\n\n\ndef send",
    "from confluent_kafka import Consumer\n",
)
TESTS_OF_BROKER_TIME = (
    "def test_orders_are_kept_for_a_week",
    "from confluent_kafka import Consumer\n",
    "from datetime import UTC, datetime\n\nimport time_machine\n",
    "def test_a_follower_that_is_cut_off",
)
RUNS_OF_CONTROL = ("$ ottla run --brokers 3", "$ ottla run --topic orders:1", "$ echo '[{")
PASTED = {
    f"{README}: from confluent_kafka import Consumer, Producer",
    f"{README}: docker build -t ottla .",
    f"{README}: . .venv/bin/activate\nottla topics create",
    f"{README}: . .venv/bin/activate\npython examples/rebalance_live.py",
    f"{README}: make serve ARGS=",
    f"{CLI}: $ ottla serve --ephemeral &",
    f"{CLI}: $ ottla serve --ephemeral --brokers 3 &",
    f"{CLUSTERS}: ottla serve --brokers 3",
    f"{CLUSTERS}: ottla topics create orders",
    f"{CLUSTERS}: ottla topics create invoices",
    f"{CLUSTERS}: docker build -t ottla .",
    f"{SECURITY}: $ ottla serve --secure",
    f"{SECURITY}: from confluent_kafka",
    f"{TESTING}: import asyncio",
    *(f"{TESTING}: {start}" for start in TESTS_OF_TESTING),
    *(f"{ISOLATION}: {start}" for start in TESTS_OF_ISOLATION),
    *(f"{CLUSTER_FAULTS}: {start}" for start in TESTS_OF_CLUSTER_FAULTS),
    *(f"{BROKER_TIME}: {start}" for start in TESTS_OF_BROKER_TIME),
    f"{SCRIPTS}: import pytest\n",
    f"{TESTING}: pytest --ottla-control",
    f"{TESTING}: import unittest",
    f"{TESTING}: from ottla import BrokerThread",
    f"{TESTING}: $ ottla run --fault",
    f"{TESTING}: from confluent_kafka import Producer\n",
    f"{CONTROL}: $ ottla serve --testing",
    f'{CONTROL}: """Run it by: ottla run',
    *(f"{CONTROL}: {start}" for start in RUNS_OF_CONTROL),
    f"{MONITORING}: ottla health",
    f"{MONITORING}: umask 077",
    f"{CLIENTS}/kafka-python.md: from kafka import",
    f"{CLIENTS}/aiokafka.md: import asyncio",
    f"{CLIENTS}/confluent-kafka.md: from confluent_kafka import",
    f"{CLIENTS}/confluent-kafka.md: printf",
}
NOT_PASTED_HERE = {
    f"{README}: make serve": "make test runs this test, and the brokers of the other blocks are served",
    f"{README}: pip install .": "an index and an environment of its own; the image installs the same package",
    f"{README}: docker compose up": "tests/docker/test_mini_cluster.py brings up compose.yaml",
    f"{CLUSTERS}: docker compose up": "tests/docker/test_mini_cluster.py pastes it",
    f"{CLUSTERS}: $ secure()": "tests/docker/test_secure_cluster.py brings it up and runs the commands",
    f"{CLUSTERS}: pip install '.[etcd]'": "an etcd on another machine; tests/storm runs one here",
    "docs/benchmarks.md: make bench": "half an hour",
    f"{TESTING}: ottla run -- go": "tests/cli/test_run.py runs programs with these options",
    f"{MONITORING}: curl": "tests/broker/admin/test_node_pages.py asks for the page",
    f"{TESTING}: ottla serve --testing": "a broker starts with the documented arguments",
    f"{MONITORING}: ottla serve --admin": "a broker starts with the documented arguments",
    "docs/security-clients.md: $ ottla": "needs a listener with SASL: tests/cli/test_logged_in.py logs in at one",
    f"{CLIENTS}/spark.md: ": "needs Spark: tests/pipeline has the connector's tests",
    "docs/pipeline.md: ": "needs Spark: tests/pipeline/test_docs.py pastes it",
    "examples/orders_pipeline/README.md: ": "needs Spark: tests/pipeline/test_docs.py pastes it",
    "examples/exactly_once/README.md: ": "needs Spark: tests/pipeline/test_transactions.py runs what it names",
    "docs/audit.md: ": "tests/audit/test_docs.py runs its examples",
    "docs/cookbook.md: ": "tests/docs/test_cookbook.py runs each recipe, and each with a mistake in it",
    "docs/faults-matrix.md: ": "tests/matrix/test_docs.py runs its example",
    "docs/faults.md: ": "tests/faults/test_docs.py runs its examples",
    "docs/finding-bugs.md: ": "tests/kit/test_shop.py runs the service that it is about",
    "examples/shop/README.md: ": "tests/kit/test_shop.py runs its tests",
    "distributions/pytest-ottla/README.md: ": "tests/kit/test_distributions.py runs it with the installed plugin",
    "docs/wire.md: ": "tests/wire/test_docs.py runs its examples",
    "docs/upgrades.md: kafka-features.sh": "needs Kafka's tools: tests/clients/test_kafka_tools.py runs them",
    "docs/image.md: docker build --target kafka": "tests/docker/test_kafka_image.py builds and runs it",
    "docs/image.md: docker run": "tests/control/test_serving.py starts a broker with these variables",
    "docs/image.md: from testcontainers": "tests/docker/test_testcontainers.py starts the same class",
    "CONTRIBUTING.md: ": "minutes of checks; tests/docs/test_documents.py knows the targets of make",
}


def says(each: Block, start: str) -> bool:
    return f"{each.document}: {each.text}".startswith(start)


@pytest.mark.parametrize("each", list(blocks()), ids=lambda each: each.name)
def test_a_block_is_pasted_or_has_a_reason_not_to_be(each: Block) -> None:
    pasted = [start for start in PASTED if says(each, start)]
    assert pasted or [start for start in NOT_PASTED_HERE if says(each, start)], f"no test pastes:\n{each.text}"


def test_no_reason_is_given_for_a_block_that_is_gone() -> None:
    assert [start for start in [*PASTED, *NOT_PASTED_HERE] if not any(says(each, start) for each in blocks())] == []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "data") as broker:
        yield broker


def test_readmes_test_passes(tmp_path: Path) -> None:
    file = tmp_path / "test_orders.py"
    file.write_text(block(README, "from confluent_kafka import").text)

    assert "1 passed" in run_pytest(file)


def test_readmes_commands_produce_and_consume(broker: ServedBroker, tmp_path: Path) -> None:
    printed = paste(block_with("ottla consume orders --group shop --from").text, broker.bootstrap, tmp_path)

    assert "created topic orders" in printed
    assert "produced 2 records to orders" in printed
    assert {"book", "pen"} <= set(printed.splitlines())


@pytest.mark.slow
def test_readmes_story_says_why_the_group_rebalanced(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", {"ottla.events.enable": "true"}) as broker:
        printed = paste(block_with("ottla groups story").text, broker.bootstrap, tmp_path)

    story = printed.partition("anna stops")[2]
    for reason in ("member joined", "member left", "session expired"):
        assert reason in story


def test_monitorings_commands_say_that_all_is_well(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    commands = block(MONITORING, "ottla health --url").text.replace("127.0.0.1:9644", f"127.0.0.1:{port}")

    with ServedBroker(tmp_path / "data", arguments=["--admin", f"127.0.0.1:{port}"]) as broker:
        health, restart = paste(commands, broker.bootstrap, tmp_path).splitlines()

    disk = shutil.disk_usage(tmp_path)
    is_nearly_full = disk.free < disk.total * DISK_FREE_RATIO_MIN
    assert health.startswith("degraded; disk space") if is_nearly_full else health == "ready", health
    assert restart == "safe"


@pytest.mark.skipif(None in (shutil.which("openssl"), shutil.which("curl")), reason="openssl or curl is not installed")
def test_token_of_monitoring_opens_the_metrics(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    made, asked = block(MONITORING, "umask 077").text.replace("127.0.0.1:9644", f"127.0.0.1:{port}").split("curl", 1)
    paste(made, "", tmp_path)
    tokens = f"ottla.admin.tokens.file={tmp_path / 'admin-tokens'}"

    with ServedBroker(tmp_path / "data", arguments=["--admin", f"127.0.0.1:{port}", "--set", tokens]) as broker:
        page = paste(f"curl{asked}", broker.bootstrap, tmp_path)
        refused = paste(f"curl -s http://127.0.0.1:{port}/metrics", broker.bootstrap, tmp_path)

    assert "\nottla_build_info{" in page
    assert "ottla_build_info" not in refused


def block_with(text: str) -> Block:
    (found,) = [each for each in blocks() if each.document == README and text in each.text]
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        arguments
        for each in blocks()
        if each.language != "python"
        for arguments in served_arguments(each.text)
        if "--metadata" not in arguments  # There is no etcd.
    ],
    ids=" ".join,
)
def test_a_broker_starts_with_the_documented_arguments(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word for word in arguments if word != "--ephemeral"]  # The test gives a directory.
    brokers = int(given[given.index("--brokers") + 1]) if "--brokers" in given else 1

    with ServedBroker(tmp_path / "data", arguments=given) as broker:
        assert len(broker.bootstrap.split(",")) == brokers


@pytest.mark.parametrize("brokers", [1, 3])
def test_commands_of_the_command_line_page_print_what_it_shows(brokers: int, tmp_path: Path) -> None:
    start = "$ ottla serve --ephemeral" + (" --brokers 3" if brokers > 1 else "") + " &"
    commands, shown = transcript(block(CLI, start))

    with ServedBroker(tmp_path / "data", arguments=["--brokers", str(brokers)]) as broker:
        printed = paste(commands, broker.bootstrap, tmp_path)

    for line in shown:
        assert without_measures(line) in without_measures(printed)


def transcript(each: Block) -> tuple[str, list[str]]:
    """The commands after the one that serves, and the lines that they print."""
    lines = [line for line in each.text.splitlines()[1:] if not line.startswith("ready ")]
    return "\n".join(line[2:] for line in lines if line.startswith("$ ")), [x for x in lines if not x.startswith("$ ")]


def without_measures(text: str) -> str:
    return re.sub(r" in [\d.]+ s \([\d,]+/s\)", "", text)


def test_a_secured_broker_takes_what_its_page_shows(tmp_path: Path) -> None:
    commands, shown = transcript(block(SECURITY, "$ ottla serve --secure ./dev &"))
    program = tmp_path / "program.py"
    program.write_text(block(SECURITY, "from confluent_kafka").text)

    with ServedBroker(tmp_path / "data", arguments=["--secure", str(tmp_path / "dev")]) as broker:
        printed = paste(commands, broker.bootstrap, tmp_path)
        run_python(program)

    assert printed.splitlines() == shown


def test_commands_of_the_clusters_page_work(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", arguments=["--brokers", "3"]) as broker:
        printed = paste(block(CLUSTERS, "ottla topics create orders").text, broker.bootstrap, tmp_path)
        moved = paste(block(CLUSTERS, "ottla topics create invoices").text, broker.bootstrap, tmp_path)

    assert "created topic orders" in printed
    assert "orders:0 moved to 2,1,0" in printed
    assert len(re.findall(r"invoices:\d moved to (1,2|2,1)\n", moved)) >= 4


@pytest.mark.parametrize(
    ("document", "start", "shown"),
    [
        (TESTING, "import asyncio", r"b'hello'"),
        (TESTING, "import unittest", r"b'book'"),
        (TESTING, "from ottla import BrokerThread", r"127\.0\.0\.1:\d+"),
        (TESTING, "from confluent_kafka import Producer\nfrom ottla import ClusterThread", r"\d was killed, \d leads"),
        (f"{CLIENTS}/kafka-python.md", "from kafka", r"b'book'"),
        (f"{CLIENTS}/aiokafka.md", "import asyncio", r"b'book'"),
        (f"{CLIENTS}/confluent-kafka.md", "from confluent_kafka", r"b'book'"),
    ],
)
def test_programs_of_the_documents_run(document: str, start: str, shown: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block(document, start).text)

    assert re.search(shown, run_python(program))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_the_commands_of_kcat_produce_and_consume(broker: ServedBroker, tmp_path: Path) -> None:
    printed = paste(block(f"{CLIENTS}/confluent-kafka.md", "printf").text, broker.bootstrap, tmp_path)

    assert printed.splitlines() == ["0@0 alice=book", "0@1 bob=pen"]


PAGES_OF_TESTS = [
    *((TESTING, start) for start in TESTS_OF_TESTING),
    *((ISOLATION, start) for start in TESTS_OF_ISOLATION),
    *((BROKER_TIME, start) for start in TESTS_OF_BROKER_TIME),
    *((CLUSTER_FAULTS, start) for start in TESTS_OF_CLUSTER_FAULTS),
    (SCRIPTS, "import pytest\n"),
]


@pytest.mark.parametrize(("page", "start"), PAGES_OF_TESTS)
def test_tests_of_the_pages_about_tests_pass(page: str, start: str, tmp_path: Path) -> None:
    (found,) = [each for each in blocks() if each.document == page and each.text.startswith(start)]
    file = tmp_path / "test_page.py"
    file.write_text(found.text)

    assert "1 passed" in run_pytest(file)


def test_command_line_of_the_testing_page_says_what_it_shows(tmp_path: Path) -> None:
    command, *shown = block(TESTING, "$ ottla run --fault").text.splitlines()
    both = command.removeprefix("$ ") + " 2>&1 || echo $?"

    printed = paste(both, "", tmp_path)

    assert without_measures(printed).splitlines() == [without_measures(each) for each in shown if each != "$ echo $?"]


def test_tests_take_the_broker_of_the_testing_page(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    control = f"127.0.0.1:{port}"
    arguments = ["--testing", "--control", control, "--control-file", str(tmp_path / "control.json")]
    with ServedBroker(tmp_path / "data", arguments=arguments) as broker:
        (tmp_path / "test_it.py").write_text(
            f"def test_it(kafka):\n    assert kafka.topics == []\n    assert kafka.bootstrap == '{broker.bootstrap}'\n"
        )
        command = block(TESTING, "pytest --ottla-control").text.replace("127.0.0.1:9098", control)

        # The directory has a link to the examples, which have tests too.
        assert "1 passed" in paste(f"{command.strip()} test_it.py\n", broker.bootstrap, tmp_path)


def test_commands_of_the_control_page_print_what_it_shows(tmp_path: Path) -> None:
    commands, shown = transcript(block(CONTROL, "$ ottla serve --testing"))
    file = tmp_path / "control.json"
    arguments = ["--testing", "--control", "127.0.0.1:0", "--control-file", str(file)]

    with ServedBroker(tmp_path / "data", arguments=arguments) as broker:
        printed = paste(commands, broker.bootstrap, tmp_path)

    produced = [line for line in printed.splitlines() if not line.startswith("produced 1 record")]
    assert produced == [line for line in shown if not line.startswith("control ")]


@pytest.mark.parametrize("start", RUNS_OF_CONTROL)
def test_runs_of_the_control_page_print_what_it_shows(start: str, tmp_path: Path) -> None:
    lines = block(CONTROL, start).text.splitlines()
    commands = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))

    printed = paste(commands, "", tmp_path)

    # Columns hold still, sizes and times do not.
    shown = [re.sub(r"\b\d{4,}\b|\d+\.\d+|#\d+", "0", without_measures(line)) for line in lines if line[:2] != "$ "]
    found = [re.sub(r"\b\d{4,}\b|\d+\.\d+|#\d+", "0", without_measures(line)) for line in printed.splitlines()]
    assert [line.split() for line in found] == [line.split() for line in shown]


def test_the_program_of_the_control_page_controls_its_broker(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(block(CONTROL, '"""Run it by').text)

    printed = paste("ottla run -- python orders.py", "", tmp_path).splitlines()

    assert printed[:2] == ["['book']", "408 group 'shop' was not stable with 1 member within 0.1 s"]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", [README, CLUSTERS])
def test_the_documented_docker_run_serves(document: str) -> None:
    image = build_image()
    run = block(document, "docker build -t ottla .").text.replace("&&", "\n").splitlines()[1].split()
    assert run[:2] == ["docker", "run"]
    (port,) = free_ports(1)
    volume = f"ottla-docs-{port}"
    words = {"9092:9092": f"127.0.0.1:{port}:9092", "ottla-data:/data": f"{volume}:/data", "ottla": image}

    container = docker("run", "--detach", *(words.get(word, word) for word in run[2:]))
    try:
        wait_until_healthy(container)
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", container], capture_output=True)
        subprocess.run(["docker", "volume", "rm", "--force", volume], capture_output=True)
