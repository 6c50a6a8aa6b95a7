"""Apache Kafka from Maven Central as one node, broker and controller in one, with the settings its own scripts use."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.figure import NotMeasured
from benchmarks.processes import Server

POM = Path(__file__).parents[1] / "tests" / "java" / "pom.xml"
# What kafka-server-start.sh and kafka-run-class.sh of Kafka 4.1 give the virtual machine.
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# For what runs a few seconds on a machine with little to spare: no second compiler, one thread that collects garbage.
SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
CLUSTER_ID = "b3R0bGEtYmVuY2gtMTIzNA"
TRANSACTION_VERSION = 2
"""That of a new cluster."""
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners={protocol}://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class ApacheKafka:
    """A formatted data directory under `directory`, and what starts a node on it.

    Raises NotMeasured where there is no Java, no Maven, or no way to Kafka's jars."""

    def __init__(
        self,
        directory: str,
        more: Mapping[str, str] | None = None,
        *,
        transaction_version: int = TRANSACTION_VERSION,
        protocol: str = "PLAINTEXT",
        scram: Sequence[str] = (),
    ) -> None:
        """`more` are further properties of the node; `transaction_version` is the level of that feature; `protocol`
        that of the listener, which has its name; `scram` are users to begin with, each as kafka-storage takes them."""
        self.port = processes.free_port(in_a_row=2)
        self._classpath = classpath()
        self._properties = Path(directory) / "server.properties"
        text = PROPERTIES.format(port=self.port, controller_port=self.port + 1, directory=directory, protocol=protocol)
        self._properties.write_text(text + "".join(f"{name}={value}\n" for name, value in (more or {}).items()))
        feature = f"transaction.version={transaction_version}"
        format_arguments = ["format", "-t", CLUSTER_ID, "-c", str(self._properties), "--feature", feature]
        for user in scram:
            format_arguments += ["--add-scram", user]
        formatting = self._java("kafka.tools.StorageTool", *format_arguments, options=SHORT_LIFE)
        done = subprocess.run(formatting, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"kafka-storage could not format it: {done.stdout}{done.stderr}"

    @contextmanager
    def running(self, options: tuple[str, ...] = JVM_OPTIONS) -> Iterator[Server]:
        """The node from the moment of its exec: it does not serve yet."""
        command = self._java("kafka.Kafka", str(self._properties), options=options)
        with processes.started(command, stderr=subprocess.DEVNULL) as process:
            yield Server(process, self.port)

    def _java(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        return ["java", *options, "-cp", self._classpath, main_class, *arguments]


def classpath(pom: Path = POM) -> str:
    """The jars of Apache Kafka and its tools, or of another pom.xml, which Maven fetches once.

    Raises NotMeasured where there is no Java, no Maven, or no way to the jars."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NotMeasured(f"{program} is not installed")
    # Maven needs ten seconds to find what it has found before.
    known = Path.home() / ".m2" / f"ottla-classpath-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    if known.exists() and all(Path(jar).exists() for jar in known.read_text().split(os.pathsep)):
        return known.read_text()
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "classpath"
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={output}"]
        done = subprocess.run(["mvn", "-q", "-B", "-f", pom, *goal], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise NotMeasured(f"Maven could not resolve Apache Kafka: {done.stdout[-300:]}")
        known.parent.mkdir(exist_ok=True)
        known.write_text(output.read_text())
        return output.read_text()
