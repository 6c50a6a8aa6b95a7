"""The StatefulSet of examples/kubernetes: its flags, properties, ports and probes are those of a broker."""

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

from ottla.broker.config.server import ServerConfig
from ottla.broker.server.network import TcpNetwork
from ottla.cli.serve_options import parse_plain, usage_error
from tests.broker.admin.pages import get
from tests.broker.wire import running_broker

MANIFEST = (Path(__file__).parents[3] / "examples/kubernetes/ottla.yaml").read_text()
DOCKERFILE = (Path(__file__).parents[3] / "Dockerfile").read_text()
_PROBE = re.compile(r"httpGet: \{path: (\S+), port: (\w+)\}")
_PORT = re.compile(r"- \{name: (\w+), (?:containerPort|port): (\d+)\}")


def serve_arguments() -> list[str]:
    """What the shell of pod ottla-1 gives to `ottla serve`."""
    text = MANIFEST.partition("exec ottla serve")[2].partition("          ports:")[0]
    return shlex.split(text.replace("${HOSTNAME##*-}", "1").replace("${HOSTNAME}", "ottla-1"))


def test_command_of_the_pods_is_one_that_ottla_takes() -> None:
    values = parse_plain(serve_arguments())

    assert values is not None
    assert usage_error(values) is None
    assert (values["node_id"], values["advertise"], values["admin"]) == (1, "ottla-1.ottla:9092", "0.0.0.0:9644")
    config = ServerConfig.parse(None, [*values["settings"]])
    assert config.ottla_health_ready_requires == "caught-up"


def test_ports_are_those_of_the_command() -> None:
    ports = dict(_PORT.findall(MANIFEST))

    assert ports == {"kafka": "9092", "admin": "9644"}
    assert {port for _, port in _PROBE.findall(MANIFEST)} == {"admin"}


async def test_pages_that_the_probes_ask_for_are_served(tmp_path: Path) -> None:
    paths = [path for path, _ in _PROBE.findall(MANIFEST)]
    paths += re.findall(r"prometheus.io/path: (\S+)", MANIFEST)
    assert len(paths) == 4

    async with running_broker(tmp_path, ottla_admin_listener="127.0.0.1:0") as broker:
        for path in paths:
            assert (await get(TcpNetwork(), broker.admin_url, path)).status == 200, path


def test_image_gives_a_start_as_long_as_the_pods_have() -> None:
    """Recovery may take minutes. Who replaces unhealthy containers, as Swarm does, would begin it again and again."""
    yaml: Any = import_module("yaml")
    *_, brokers = yaml.safe_load_all(MANIFEST)
    (container,) = brokers["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    (period,) = re.findall(r"^HEALTHCHECK .*--start-period=(\d+)s", DOCKERFILE, re.MULTILINE)

    assert int(period) == probe["periodSeconds"] * probe["failureThreshold"] == 600


def test_manifest_is_what_a_cluster_of_brokers_needs() -> None:
    yaml: Any = import_module("yaml")
    service, budget, brokers = yaml.safe_load_all(MANIFEST)
    pod = brokers["spec"]["template"]

    assert [each["kind"] for each in (service, budget, brokers)] == ["Service", "PodDisruptionBudget", "StatefulSet"]
    # Followers and clients reach a broker by its name while it is not ready.
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == pod["metadata"]["labels"] == budget["spec"]["selector"]["matchLabels"]
    assert pod["spec"]["terminationGracePeriodSeconds"] >= 60
    (container,) = pod["spec"]["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == {"data"}
    assert {each["metadata"]["name"] for each in brokers["spec"]["volumeClaimTemplates"]} == {"data"}
