"""KAFKA_* variables as properties, beside the class that does it in apache/kafka's image (Kafka 4.1's own)."""

import base64
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ottla.broker.config.definitions import SERVER_OPTIONS
from ottla.broker.config.properties import parse_properties
from ottla.cli.kafka_image.environment import NO_PROPERTIES, properties_text
from tests.cli.kafka_image.examples import SINGLE_NODE, TESTCONTAINERS
from tests.java_tools import TOOL_WITHIN_S, classpath, program

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

SOURCE = Path(__file__).parents[1] / "java" / "DockerWrapper.java"
DEFAULTS = {"the.defaults": "yes"}
PIECES = ("KAFKA_", "KAFKA", "_", "__", "___", "____", "_____", "A", "b", "CFG", "9", ".", "..", "-", "LOG4J")
VALUES = ("1", "", "a=b", "a,b", " x ", r"C:\dir\n", "#no", "x\nsecond.property=2", "é", "a\\", "${x}", "[a,b]")
Case = tuple[Mapping[str, str], str]


def corpus() -> list[Case]:
    """All names of Kafka's variables that are left out, all properties that there are, runs of underscores, pieces put
    together by chance, each in an environment of its own; some with a mounted file."""
    chance = random.Random(7)
    names = [*NO_PROPERTIES, "KAFKA_HEAP_OPT", "KAFKA_", "KAFKA", "kafka_a", "MY_KAFKA_A", "CLUSTER_ID", "PATH"]
    names += [f"KAFKA_{name.upper().replace('.', '_')}" for name in SERVER_OPTIONS]
    names += [f"KAFKA_{'_' * before}A{'_' * between}B{'_' * after}" for before in range(5) for between in range(9)
              for after in range(4)]  # fmt: skip
    names += ["KAFKA_" + "".join(chance.choices(PIECES, k=chance.randint(1, 6))) for _ in range(300)]
    alone: list[Case] = [({name: chance.choice(VALUES)}, "") for name in names]
    examples: list[Case] = [(SINGLE_NODE, ""), (TESTCONTAINERS, ""), ({}, ""), (SINGLE_NODE, "num.partitions=9\n")]
    mounted: list[Case] = [
        ({"KAFKA_NUM_PARTITIONS": "3"}, "num.partitions=9\nlog.dirs=/a"),
        ({}, "num.partitions=9"),
        ({}, "\n \n"),
        ({"PATH": "/bin"}, "# nothing\n"),
    ]
    return alone + examples + mounted


def by_kafka(cases: Sequence[Case]) -> list[str]:
    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    lines = [
        f"{' '.join(encoded(f'{name}={value}') for name, value in variables.items())}|{encoded(mounted)}"
        for variables, mounted in cases
    ]
    command = program(SOURCE, classpath())
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=2 * TOOL_WITHIN_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return [base64.b64decode(line).decode() for line in done.stdout.splitlines() if line and " " not in line]


def test_the_properties_file_is_kafkas_line_by_line() -> None:
    cases = corpus()

    for (variables, mounted), theirs in zip(cases, by_kafka(cases), strict=True):
        ours = properties_text(variables, mounted)
        if not ours.strip():
            # The file of defaults is used, as with us the defaults of the image.
            assert parse_properties(theirs) == DEFAULTS, variables
            continue
        # They are in the order of a hash table; each environment sets no property twice.
        assert sorted(ours.splitlines()) == sorted(theirs.splitlines()), variables
        assert parse_properties(ours) == parse_properties(theirs), variables
    assert len(cases) > 600
