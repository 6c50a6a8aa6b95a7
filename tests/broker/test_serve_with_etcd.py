"""`ottla serve --metadata etcd://...`: brokers that share a cluster over etcd, and what they say when they cannot."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.operations.serve import ServeOptions, run
from tests.cluster_processes import ClusterProcesses, wait_for
from tests.ports import free_ports
from tests.served import ServedBroker

IMPATIENT = {"initial.broker.registration.timeout.ms": "300"}


def test_two_processes_become_one_cluster(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=2) as cluster:
        first, second = cluster.brokers[1], cluster.brokers[2]
        described = subprocess.run(
            [sys.executable, "-m", "ottla", "cluster", "status", "--bootstrap", second.bootstrap],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

        assert first.bootstrap in described
        assert second.bootstrap in described
        assert cluster.stop() == {1: 0, 2: 0}


def test_unreachable_etcd_is_one_sentence_after_a_timeout(tmp_path: Path) -> None:
    nowhere = f"etcd://127.0.0.1:{free_ports(1)[0]}"
    options = ["--metadata", nowhere, "--node-id", "1", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    settings = [word for key, value in IMPATIENT.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "serve", *options, *settings], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("ottla: the metadata store cannot be used: ")
    assert "Traceback" not in done.stderr


def test_sigterm_ends_the_wait_for_an_etcd(tmp_path: Path) -> None:
    nowhere = f"etcd://127.0.0.1:{free_ports(1)[0]}"
    waiting = ServedBroker(tmp_path / "data", arguments=["--metadata", nowhere, "--node-id", "1"])
    waiting.launch()
    wait_for(lambda: "metadata store" in waiting.stderr, 20, "nothing was said of the store")

    assert waiting.stop() == 0
    assert "Traceback" not in waiting.stderr


def test_a_directory_with_metadata_of_its_own_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        broker.stop()

    status = run(ServeOptions(data_dir=str(tmp_path / "data"), metadata="etcd://127.0.0.1:1", node_id=1))

    assert status == 1
    assert "has metadata of its own (ottla-metadata.sqlite)" in capsys.readouterr().err


def test_without_the_extra_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["aiohttp"] = None
from ottla.cli.operations.serve import ServeOptions, run
sys.exit(run(ServeOptions(data_dir={str(tmp_path)!r}, metadata="etcd://127.0.0.1:1", node_id=1)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 1
    assert (
        done.stderr
        == "ottla: --metadata etcd://127.0.0.1:1 needs aiohttp, which comes with: pip install 'ottla[etcd]'\n"
    )
