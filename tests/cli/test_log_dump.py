"""`ottla log dump` of files that Apache Kafka 4.1 wrote, and of damaged ones."""

import json
import re
from pathlib import Path
from typing import Any

from tests.cli.runner import run
from tests.java_tools import run_tool

DIRECTORY = Path(__file__).parents[1] / "golden" / "kafka_4_1" / "idem-0"
SEGMENT, INDEX, TIME_INDEX, SNAPSHOT = (
    next(DIRECTORY.glob(f"*.{ending}")) for ending in ("log", "index", "timeindex", "snapshot")
)


def dumped(*arguments: str | Path) -> list[dict[str, Any]]:
    result = run("log", "dump", "--json", *map(str, arguments))
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def facts(text: str) -> list[dict[str, str]]:
    """`name: value` pairs of the lines that have some, in Kafka's words."""
    pairs = (dict(re.findall(r"(\w+): (\S+)", line)) for line in text.splitlines())
    return [found for found in pairs if "baseOffset" in found or "position" in found or "keySize" in found]


def test_batches_and_records_are_those_of_kafkas_tool() -> None:
    kafka = facts(run_tool("kafka.tools.DumpLogSegments", "--print-data-log", "--files", SEGMENT))
    ours = facts(run("log", "dump", "--records", str(SEGMENT)).stdout)

    # Kafka writes a lack of a delete horizon in words of Java.
    assert ours == [{name: value for name, value in each.items() if name != "deleteHorizonMs"} for each in kafka]


def test_batches_of_a_segment_lie_one_behind_the_other() -> None:
    batches = dumped(SEGMENT)

    assert [each["position"] for each in batches[1:]] == [each["position"] + each["size"] for each in batches[:-1]]
    assert all(each["isvalid"] for each in batches)
    assert sum(each["count"] for each in batches) == 500 == batches[-1]["lastOffset"] + 1


def test_indexes_lead_to_batches_and_snapshots_name_producers() -> None:
    positions = {each["position"] for each in dumped(SEGMENT)}

    assert {each["position"] for each in dumped(INDEX)} <= positions
    assert all(each["timestamp"] > 1_600_000_000_000 for each in dumped(TIME_INDEX))
    assert len({each["producerId"] for each in dumped(SNAPSHOT)}) == 5


def test_directory_stands_for_the_segments_of_its_partition(tmp_path: Path) -> None:
    assert dumped(DIRECTORY) == dumped(SEGMENT)

    result = run("log", "dump", str(tmp_path))
    assert (result.exit_code, result.stderr.strip()) == (
        1,
        f"Error: there are no segments in {tmp_path}: name the directory of a partition",
    )


def test_damage_is_named_and_the_status_is_one(tmp_path: Path) -> None:
    content = bytearray(SEGMENT.read_bytes())
    content[200] ^= 1
    broken, torn, index = (tmp_path / f"{number:020}.{end}" for number, end in ((1, "log"), (2, "log"), (3, "index")))
    broken.write_bytes(content)
    torn.write_bytes(SEGMENT.read_bytes()[:-3])
    index.write_bytes(b"12345")

    result = run("log", "dump", str(broken), str(torn), str(index))

    assert result.exit_code == 1
    assert "isvalid: false" in result.stdout
    assert re.search(r"1\.log is damaged: the checksum of the batch at position \d+ is wrong; ", result.stderr)
    assert re.search(r"2\.log is damaged: the last \d+ bytes are not a whole batch; ", result.stderr)
    assert "3.index is damaged: the last 5 bytes are not a whole entry" in result.stderr


def test_other_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    other = tmp_path / "meta.properties"
    other.write_text("")

    result = run("log", "dump", str(other))

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {other} is not a file like 00000000000000000000.log, with one of .log, ")
