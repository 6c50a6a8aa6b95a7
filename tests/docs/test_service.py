"""The unit for systemd starts a broker that takes its arguments, and says nothing that systemd does not understand."""

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.references import ROOT
from tests.ports import free_ports
from tests.served import ServedBroker

UNIT = ROOT / "examples/systemd/ottla.service"


def serve_arguments() -> list[str]:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(UNIT)
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[1:2] == ["serve"]
    return words[2:]


def test_a_broker_starts_with_the_arguments_of_the_unit(tmp_path: Path) -> None:
    (admin,) = free_ports(1)
    given = dict(zip(serve_arguments()[::2], serve_arguments()[1::2], strict=True))
    assert given.pop("--listen") == "0.0.0.0:9092"
    assert given.pop("--data-dir").startswith("/var/lib/ottla")
    given |= {"--advertise": given["--advertise"].replace("%H", "localhost"), "--admin": f"127.0.0.1:{admin}"}

    with ServedBroker(tmp_path / "data", arguments=[word for pair in given.items() for word in pair]) as broker:
        assert broker.is_running


def what_systemd_says(unit: str, directory: Path) -> str:
    """Of a unit whose program is at hand; nothing where systemd understands all of it."""
    installed = unit.replace("/opt/ottla/.venv/bin/ottla", str(Path(sys.executable).with_name("ottla")))
    assert installed != unit
    file = directory / "ottla.service"
    file.write_text(installed)
    return subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False).stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_every_line_of_the_unit(tmp_path: Path) -> None:
    unit = UNIT.read_text()

    assert what_systemd_says(unit, tmp_path) == ""
    assert "ProtectSistem" in what_systemd_says(unit.replace("ProtectSystem", "ProtectSistem"), tmp_path)
    assert "sometimes" in what_systemd_says(unit.replace("on-failure", "sometimes"), tmp_path)
