"""The jobs at a broker that wants TLS and a login: Spark's connector, and the producers of a replay."""

import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipeline import archive
from ottla.pipeline.clients import ClientSecurity, read_clients
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jobs.job import follow
from ottla.pipeline.launch import environment, submit_options
from tests.pipeline.conftest import BROKER_SETTINGS
from tests.pipeline.examples import EXAMPLES, script
from tests.pipeline.jobs import ENVIRONMENT, QUICK_SPARK, failed_job, job
from tests.served import ServedBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
TOPIC, COPY = "words", "copy"
# All jobs log in by the same code: an archive and its replay show it in every run, the others where there is time.
at_night = pytest.mark.skipif(
    "OTTLA_SPARK_SECURED" not in os.environ, reason="takes minutes: make nightly sets OTTLA_SPARK_SECURED"
)
VALUES = [str(number).encode() for number in range(30)]
WITHIN_S = 30


class Secured:
    """A broker of `ottla serve --secure`, and the files for its clients."""

    def __init__(self, directory: Path) -> None:
        self.files = directory / "dev"
        events = {"ottla.events.enable": "true"}
        arguments = ["--secure", str(self.files)]
        self.served = ServedBroker(directory / "data", BROKER_SETTINGS | events, arguments=arguments)

    @property
    def properties(self) -> str:
        return str(self.files / "client.properties")

    @property
    def client(self) -> dict[str, Any]:
        lines = (self.files / "librdkafka.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def secrets(self) -> list[str]:
        return [(self.files / f"{user}.password").read_text().strip() for user in ("admin", "broker")]

    def fill(self) -> None:
        admin = AdminClient(self.client)
        for made in admin.create_topics([NewTopic(name, 3, 1) for name in (TOPIC, COPY)]).values():
            made.result(WITHIN_S)
        producer = Producer(self.client)
        for value in VALUES:
            producer.produce(TOPIC, value)
        assert producer.flush(WITHIN_S) == 0

    def values_in(self, topic: str, count: int) -> list[bytes]:
        consumer = Consumer({**self.client, "group.id": f"read {topic}", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found = [consumer.poll(WITHIN_S) for _ in range(count)]
        more = consumer.poll(1)
        consumer.close()
        assert more is None
        return sorted(each.value() or b"" for each in found if each is not None)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    with secured.served:
        secured.fill()
        yield secured


def arguments(config: str | None, bootstrap: str | None = None) -> Namespace:
    return Namespace(command_config=config, bootstrap=bootstrap)


def test_an_archive_is_made_and_replayed(secured: Secured, spark_jars: Path, tmp_path: Path) -> None:
    """Where the brokers are stands in the file too."""
    table, config = str(tmp_path / "table"), ["--command-config", secured.properties]
    said = job("archive", *config, "--topic", TOPIC, "--table", table, "--once", jars=spark_jars)
    said += job("replay", *config, "--table", table, "--from", TOPIC, "--to", COPY, jars=spark_jars)
    assert secured.values_in(COPY, len(VALUES)) == sorted(VALUES)
    more = ["--no-transaction", "--any-partition", "--first-offset", "1000"]
    said += job("replay", *config, "--table", table, "--from", TOPIC, "--to", COPY, *more, jars=spark_jars)

    assert f"archived {len(VALUES)} records to {table}" in said
    assert f"replayed {len(VALUES)} records of {TOPIC} to {COPY}" in said
    kept = "".join(path.read_text(errors="replace") for path in (tmp_path / "table").rglob("*") if path.is_file())
    assert not [secret for secret in secured.secrets if secret in said or secret in kept]


def test_executors_log_in_without_files(spark: Any, secured: Secured, tmp_path: Path) -> None:
    """What the file says, and the stores that it names, go to them as texts."""
    file = tmp_path / "client.properties"
    named = Path(secured.properties).read_text().split("ssl.truststore.type")[0].splitlines()
    file.write_text("\n".join([*named, f"ssl.truststore.location={secured.files / 'ca.pem'}"]))
    given = arguments(str(file))
    security = read_clients(given)
    options = security.of_connector()
    records = archive.read_topics(spark, given.bootstrap, [TOPIC], options)
    table = str(tmp_path / "table")
    follow(lambda: archive.write_table(archive.archived(records), table, f"{table}/c", once=True, interval_s=1))

    assert not [name for name in options if "location" in name]
    assert spark.read.format("delta").load(table).count() == len(VALUES)


@at_night
def test_the_whole_run_makes_a_report(secured: Secured, spark_jars: Path, tmp_path: Path) -> None:
    said = job("run", "--command-config", secured.properties, "--to", str(tmp_path / "out"), jars=spark_jars)

    assert said.splitlines()[-1] == f"wrote {tmp_path}/out/report.html"


@at_night
@pytest.mark.timeout(900)
def test_the_examples_run_with_the_file(secured: Secured, spark_jars: Path, tmp_path: Path) -> None:
    tables = tmp_path / "orders", tmp_path / "balances"
    schema = ["--schema", script("orders_pipeline", "revenue").SCHEMA]
    archived = ["--command-config", secured.properties, "--topic", "orders", "--table", str(tables[0]), "--once"]

    example(secured, spark_jars, "orders_pipeline/orders.py", "--orders", "50")
    job("archive", *archived, *schema, jars=spark_jars)
    shown = example(secured, spark_jars, "orders_pipeline/revenue.py", "--table", str(tables[0]))
    example(secured, spark_jars, "exactly_once/transfers.py", "--transfers", "10")
    balances = example(secured, spark_jars, "exactly_once/balances.py", "--table", str(tables[1]))

    assert all(item in shown for item in ("tea", "coffee", "cake", "water"))
    assert len(secured.values_in("revenue", 4)) == 4
    assert re.search(r"\|in all\|\n.*\n\| +0\|", balances), balances


def example(secured: Secured, jars: Path, file: str, *arguments: str) -> str:
    """What it prints. As spark-submit would start it."""
    options = submit_options("local[2]", jars=jars, settings=QUICK_SPARK)
    words = [sys.executable, str(EXAMPLES / file), "--command-config", secured.properties, *arguments]
    surroundings = {**ENVIRONMENT, **environment(options)}
    done = subprocess.run(words, capture_output=True, text=True, env=surroundings, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_what_is_refused_is_one_sentence(secured: Secured, spark_jars: Path, tmp_path: Path) -> None:
    wrong, strange = tmp_path / "wrong.properties", tmp_path / "strange.properties"
    text = Path(secured.properties).read_text()
    wrong.write_text(text.replace(secured.secrets[0], "another"))
    strange.write_text(text.split("ssl.truststore.type")[0])
    where = secured.served.bootstrap

    def said(config: Path) -> str:
        options = ["--command-config", str(config), "--topic", TOPIC, "--table", str(tmp_path / "t"), "--once"]
        return failed_job("archive", *options, jars=spark_jars)

    assert said(wrong).startswith(f"Error: the brokers at {where} refuse the login")
    assert said(strange).startswith(f"Error: no TLS with {where}: the certificate is not accepted")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("security.protocol=SASL_SSL\n", "sasl.mechanism is missing"),
        ("security.protocol=SSL\nssl.truststore.type=JKS\n", "only PEM stores are read"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere\n", "cannot read /nowhere"),
        ("sasl.mechanism=PLAIN\n", "security.protocol is missing"),
        ("bootstrap.servers=nowhere\n", "bootstrap.servers"),
    ],
)
def test_a_file_that_cannot_be_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(PipelineError) as refused:
        read_clients(arguments(str(file)))
    assert str(refused.value).startswith(f"{file}: ")
    assert sentence in str(refused.value)


def test_options_go_before_the_environment_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    found = []
    for bootstrap in ("option:1", None):
        given = arguments(str(file), bootstrap)
        read_clients(given)
        found.append(given.bootstrap)
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(file))
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "environment:1")
    given = arguments(None)
    read_clients(given)

    assert [*found, given.bootstrap] == ["option:1", "file:1", "environment:1"]


def test_no_text_shows_what_is_secret() -> None:
    assert "sesame" not in repr(ClientSecurity({"sasl.jaas.config": 'X required password="sesame";'}))
