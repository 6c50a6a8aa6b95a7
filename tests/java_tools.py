"""Apache Kafka's own command-line tools, fetched with Maven and run on this machine's Java."""

import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import apache_kafka
from benchmarks.figure import NotMeasured
from tests.locks import alone

TOOL_WITHIN_S = 90
# Start-up dominates these short runs: no second compiler tier, no shared-archive warnings.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@functools.cache
def classpath() -> str:
    """The jars of Kafka's tools; skips the calling test where Java, Maven or the jars cannot be had."""
    # Maven's local repository is not made for two that fill it.
    with alone("maven"):
        try:
            return apache_kafka.classpath()
        except NotMeasured as reason:
            pytest.skip(str(reason))


def run_tool(
    main_class: str, *arguments: str | Path, stdin: str = "", check: bool = True, java: Sequence[str] = ()
) -> str:
    """Runs one of Kafka's tools to its end and returns what it printed to standard output. `java`: further options of
    the virtual machine."""
    command = ["java", *OPTIONS, *java, "-cp", classpath(), main_class, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_WITHIN_S)
    if check:
        assert done.returncode == 0, f"{main_class} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
