"""One Spark for all tests of a process, with the jars that users get."""

import fcntl
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.versions import DELTA_SETTINGS, installed_spark, packages
from tests.cluster_processes import ETCD_MISSING, ClusterProcesses, etcd_is_installed
from tests.pipeline import classes
from tests.pipeline.jobs import QUICK_JAVA, QUICK_SPARK
from tests.served import ServedBroker

SMALL = {
    **QUICK_SPARK,
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A plan for a handful of rows is run once: to compile it, or to plan it again at every shuffle, takes longer than
    # to interpret it. Jobs that run as processes do both.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "4",
    # Tests have records of long ago; retention is what a topic asks for.
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "300",
}
# A broker that was killed is missed soon.
CLUSTER_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
}
# Of a file that has at most two tests left a process of pytest-xdist has the next one already: those of few long tests
# come first, those of many short ones last.
LONG_TESTS_FIRST = ("test_docs.py", "test_archive.py", "test_jobs.py", "test_spark_failover.py", "test_truth.py")


class WithoutPySpark(pytest.Module):
    """A module of tests that says why it is not imported."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        pytest.skip("PySpark is not installed: make test-pipeline installs it", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Modules of this directory are imported only where PySpark is."""
    if importlib.util.find_spec("pyspark") is None:
        return WithoutPySpark.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """So that both processes are busy to the end."""

    def turn(item: pytest.Item) -> int:
        name = item.path.name
        return LONG_TESTS_FIRST.index(name) if name in LONG_TESTS_FIRST else len(LONG_TESTS_FIRST)

    here = Path(__file__).parent
    places = [place for place, item in enumerate(items) if item.path.parent == here]
    for place, item in zip(places, sorted((items[place] for place in places), key=turn), strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Skips where there is no Java, or no jars."""
    pyspark = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    os.environ |= {"PYSPARK_PYTHON": sys.executable, **QUICK_JAVA}
    builder = pyspark.SparkSession.builder.master("local[2]").appName("ottla tests")
    jars = {"spark.jars.packages": ",".join(packages(installed_spark() or ""))}
    for key, value in {**SMALL, **DELTA_SETTINGS, **classes.settings(), **jars}.items():
        builder = builder.config(key, value)
    try:
        with one_at_a_time(tmp_path_factory.getbasetemp().parent / "spark.lock"):
            session = builder.getOrCreate()
    except Exception as error:
        pytest.skip(f"Spark does not start with its jars: {error}")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Processes of one run would fetch the same jars to the same place."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("broker") / "data", BROKER_SETTINGS) as served:
        yield served


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Three brokers, to kill one of; three replicas of every topic."""
    if not etcd_is_installed():
        pytest.skip(ETCD_MISSING)
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), BROKER_SETTINGS | CLUSTER_SETTINGS) as served:
        yield served


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture(scope="session")
def spark_jars(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the jars of the session, and not those of other versions beside them: jobs that begin with it
    ask no repository."""
    directory = tmp_path_factory.mktemp("jars")
    for name in filter(None, spark.sparkContext._conf.get("spark.jars", "").split(",")):
        jar = Path(name.removeprefix("file://"))
        (directory / jar.name).symlink_to(jar)
    return directory
