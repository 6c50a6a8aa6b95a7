"""Prometheus and Grafana of compose.yaml find the files of examples/monitoring, and each other."""

from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "examples/monitoring"


def loaded(path: Path) -> Any:
    yaml: Any = import_module("yaml")
    return yaml.safe_load(path.read_text())


def mounts(service: Any) -> dict[str, Path]:
    """What a service has from this directory, by its place in the container."""
    pairs = (each.split(":") for each in service["volumes"])
    return {inside: ROOT / outside for outside, inside, mode in pairs if mode == "ro"}


def test_prometheus_of_compose_scrapes_the_brokers_with_rules() -> None:
    services = loaded(ROOT / "compose.yaml")["services"]
    directory = mounts(services["prometheus"])["/etc/prometheus"]
    settings = loaded(directory / "prometheus.yml")
    targets = {each for job in settings["scrape_configs"] for part in job["static_configs"] for each in part["targets"]}

    assert services["prometheus"]["profiles"] == services["grafana"]["profiles"] == ["observe"]
    assert {each.split(":")[0] for each in targets} < set(services)
    assert {each.split(":")[1] for each in targets} == {"9644"}
    assert all((directory / each).is_file() for each in settings["rule_files"])


def test_grafana_of_compose_has_the_dashboard_and_its_source() -> None:
    service = loaded(ROOT / "compose.yaml")["services"]["grafana"]
    found = mounts(service)
    provisioning = found["/etc/grafana/provisioning"]
    (source,) = loaded(provisioning / "datasources/prometheus.yml")["datasources"]
    (provider,) = loaded(provisioning / "dashboards/ottla.yml")["providers"]

    assert found["/var/lib/grafana/dashboards/ottla.json"] == MONITORING / "ottla.json"
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "http://prometheus:9090", True)
