"""`ottla control links`, `disks`, `wire` and `coverage`: what they ask and print, and a script that uses them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from ottla.cli.app import cli
from ottla.testing.testbed import Testbed
from tests.control.asking import produce

ENDED_WITHIN_S = 120


def test_link_is_cut_shown_and_healed(run: Any) -> None:
    assert run("links", "cut", "clients", "--to", "0") == (0, "FROM     TO  WHAT\nclients   0  cut\n")
    run("links", "pause", "clients", "--to", "0")
    run("links", "delay", "clients", "--to", "0", "--ms", "40")
    said = run("link", "bandwidth", "clients", "--to", "0", "--bytes-per-s", "1000")[1]
    assert said.endswith("0  cut, paused, 40 ms late, 1000 bytes/s\n")
    (shown,) = json.loads(run("links", "list", "--json")[1])["links"]
    assert (shown["from"], shown["to"], shown["delay_ms"]) == ("clients", 0, 40)
    run("links", "cut", "clients", "--to", "0", "--reset")
    assert "cut, connections break" in run("links", "list")[1]

    assert run("links", "heal") == (0, "FROM  TO  WHAT\n")
    assert run("links", "heal", "0", "clients")[0] == 0


def test_links_that_are_none_are_refused(run: Any) -> None:
    assert run("links", "cut", "0", "7") == (
        1,
        "ottla: between[1]: there is no broker 7, only 0, 'store' and 'clients'\n",
    )
    assert run("links", "isolate", "0")[1].startswith("ottla: there is one broker alone")
    for wrong in (["0"], ["0", "1", "--to", "2"], ["0", "1", "2"]):
        status, said = run("links", "cut", *wrong)
        assert (status, "`1 --to 2` is the way from 1 to 2" in said) == (2, True)


def test_disk_is_made_to_fail_shown_and_healed(run: Any, bed: Testbed) -> None:
    assert run("disks", "list") == (0, "NODE  WHAT\n   0     -\n")
    assert run("disks", "full", "0", "--after-bytes", "1000") == (0, "NODE  WHAT\n   0  full after 1000 bytes\n")
    run("disks", "slow-fsync", "0", "--ms", "1")
    run("disks", "fail", "0", "read", "--match", "none/*", "--always")
    said = run("disk", "fail", "0", "fsync", "--match", "none/*", "--times", "3")[1]
    assert "full after 1000 bytes, syncs 1 ms slower, read of none/* fails always" in said
    assert said.endswith("fsync of none/* fails 3 times more\n")
    assert "stalled" in run("disks", "stall", "0")[1]
    assert run("disks", "heal", "0") == (0, "NODE  WHAT\n   0     -\n")

    assert run("disks", "corrupt", "0", "orders", "0", "--offset", "0")[0] == 1
    produce(bed, "orders", b"book")
    assert run("disks", "corrupt", "0", "orders", "0", "--offset", "0")[0] == 0
    assert run("disks", "tear-tail", "0", "--bytes", "5")[1].startswith("ottla: broker 0 runs")


def test_capture_is_fetched_to_a_file_of_its_owner(run: Any, bed: Testbed, tmp_path: Path) -> None:
    file = tmp_path / "shop.owire"
    assert run("wire", "fetch", str(file))[1].startswith("ottla: there is no capture")
    assert run("wire", "mark", "too early") == (0, "nothing is captured now\n")
    assert run("wire", "start") == (0, "the capture has begun\n")
    assert run("wire", "mark", "the order comes") == (0, "marked\n")
    produce(bed, "orders", b"book")
    assert run("wire", "stop")[1].startswith("captured ")

    status, said = run("wire", "fetch", str(file))

    assert (status, said) == (0, f"{file} has {file.stat().st_size} bytes\n")
    assert file.stat().st_mode & 0o777 == 0o600
    shown = CliRunner().invoke(cli, ["wire", "show", str(file)]).output
    assert "mark: the order comes" in shown
    assert "Produce" in shown
    assert run("wire", "last", "--count", "1")[1].split()[:3] == ["AT_MS", "CONNECTION", "API"]
    assert run("wire", "fetch", str(tmp_path / "none" / "shop.owire"))[1].startswith("ottla: cannot write")
    assert [each.name for each in tmp_path.iterdir()] == ["shop.owire"]


def test_coverage_is_printed_and_a_baseline(run: Any, bed: Testbed, tmp_path: Path) -> None:
    from ottla.testing.coverage import read_baseline

    run("coverage", "--forget")
    produce(bed, "orders", b"book")

    status, said = run("coverage")

    assert (status, len(said.splitlines())) == (0, 3)
    baseline = tmp_path / "baseline.json"
    baseline.write_text(run("coverage", "--json", "--target", "3.0")[1])
    assert any(key.startswith("Produce v") for key in read_baseline(baseline)["apis"])


SCRIPT = """
set -e
ottla control links cut 0 --to 1
ottla control links heal 0 1
ottla control links delay 1 --to 2 --ms 5
ottla control disks full 2 --after-bytes 100000000
ottla control wire start
echo book | ottla produce orders
ottla control wire stop
ottla control wire fetch orders.owire
ottla control links heal
ottla control disks heal 2
ottla control wait topic-in-sync --topic orders --within 30
ottla wire show orders.owire --api Produce
ottla control coverage --json
"""


def test_script_of_a_run_breaks_its_cluster_and_heals_it(tmp_path: Path) -> None:
    """From processes of their own."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = [sys.executable, "-m", "ottla", "run", "--brokers", "3", "--topic", "orders:1", "--", "sh", "-c", SCRIPT]
    done = subprocess.run(
        run, cwd=tmp_path, capture_output=True, text=True, timeout=ENDED_WITHIN_S, env={**os.environ, "PATH": path}
    )

    assert done.returncode == 0, done.stderr
    said, _, coverage = done.stdout.partition("\n{")
    assert "   0   1  cut\n" in said
    assert "   1   2  5 ms late\n" in said
    assert "full after 100000000 bytes" in said
    assert [line for line in said.splitlines() if "Produce v" in line and " ok " in line]
    assert any(key.startswith("Produce v") for key in json.loads("{" + coverage)["apis"])
    assert [each.name for each in tmp_path.iterdir()] == ["orders.owire"]
