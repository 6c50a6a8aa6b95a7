"""Apache Kafka's own command-line tools, fetched with Maven and run on this machine's Java."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.locks import alone

POM = Path(__file__).parent / "java" / "pom.xml"
TOOL_WITHIN_S = 90


@functools.cache
def classpath() -> str:
    """The jars of Kafka's tools; skips the calling test where Java, Maven or the jars cannot be had."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "classpath"
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={output}"]
        # Maven's local repository is not made for two that fill it.
        with alone("maven"):
            done = subprocess.run(["mvn", "-q", "-B", "-f", POM, *goal], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            pytest.skip(f"Maven could not resolve Kafka's tools: {done.stdout[-300:]}")
        return output.read_text()


def run_tool(main_class: str, *arguments: str | Path, stdin: str = "", check: bool = True) -> str:
    """Runs one of Kafka's tools to its end and returns what it printed to standard output."""
    # Start-up dominates these short runs: no second compiler tier, no shared-archive warnings.
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", classpath()]
    command = ["java", *options, main_class, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_WITHIN_S)
    if check:
        assert done.returncode == 0, f"{main_class} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
