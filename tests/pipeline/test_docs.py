"""What the documents say about the pipeline works when it is pasted."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.pipeline.jobs.options import PARSERS
from ottla.pipeline.launch import JOBS
from ottla.pipeline.versions import packages
from tests.pipeline.jobs import ENVIRONMENT, JOB_WITHIN_S, settings
from tests.served import ServedBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
GUIDE, EXAMPLE = "docs/pipeline.md", "examples/orders_pipeline/README.md"


def blocks(document: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def commands(document: str) -> Iterator[list[str]]:
    for block in blocks(document):
        for line in block.replace("\\\n", "").splitlines():
            yield shlex.split(line, comments=True)


@pytest.mark.parametrize("document", [GUIDE, EXAMPLE])
def test_every_job_understands_what_is_said_to_it(document: str) -> None:
    submitted = re.compile(rf"ottla/pipeline/jobs/({'|'.join(JOBS)})\.py")
    understood = 0
    for words in commands(document):
        if "--packages" in words:
            named = words[words.index("--packages") + 1]
            assert named in ("$(ottla pipeline --packages)", ",".join(packages("4.0.0")))
        job = next((place for place, word in enumerate(words) if word in JOBS or submitted.fullmatch(word)), None)
        if job is not None:
            name = Path(words[job]).stem
            PARSERS[name]().parse_args(words[job + 1 :])
            understood += 1
    assert understood


def paste(block: str, bootstrap: str, directory: Path, jars: Path) -> str:
    """In a directory that has the examples; gives what was printed."""
    (directory / "examples").symlink_to(ROOT / "examples")
    text = block.replace("127.0.0.1:9092", bootstrap)
    text = text.replace("ottla pipeline ", f"ottla pipeline --jars {jars} {shlex.join(settings())} ")
    text = text.replace("spark-submit ", f"spark-submit {shlex.join(settings())} ")
    done = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=directory,
        env={
            **ENVIRONMENT,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP": bootstrap,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=JOB_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_a_broker_becomes_a_page(tmp_path: Path, spark_jars: Path) -> None:
    install, shown = blocks(GUIDE)[:2]
    assert "ottla serve --set ottla.events.enable=true " in install
    with ServedBroker(tmp_path / "broker", {"ottla.events.enable": "true"}) as broker:
        printed = paste(shown, broker.bootstrap, tmp_path, spark_jars)

    assert "rebalances: 6 rows" in printed
    assert "::" not in printed, "Ivy is not quiet"
    page = (tmp_path / "report" / "report.html").read_text()
    for cause, member in (("member joined", "clara"), ("member left", "bruno"), ("session expired", "clara")):
        assert re.search(rf"<td>{cause}[^<]*</td><td>{member}</td>", page), cause


def test_orders_become_sums(tmp_path: Path, spark_jars: Path) -> None:
    with ServedBroker(tmp_path / "broker") as broker:
        printed = paste(blocks(EXAMPLE)[1], broker.bootstrap, tmp_path, spark_jars)

    assert "archived 10,000 records" in printed
    assert set(re.findall(r'"item":"(\w+)"', printed)) == {"tea", "coffee", "cake", "water"}
    assert sum(map(int, re.findall(r'"orders":(\d+)', printed))) == 10_000
