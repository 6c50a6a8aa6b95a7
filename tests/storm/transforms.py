"""Consume, transform, produce: what transactions have written, against what was there to be read.

Each pipeline writes one record for each record of its input, in the same partition, and commits its offsets in the
transactions that it writes them in. So readers of committed records see each once and in order, whatever befell the
brokers and the pipeline's clients.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tests.histories.events import FinalLog
from tests.histories.violations import Partition
from tests.storm.settings import PARTITIONS, TOPIC


class Pipeline(NamedTuple):
    """Its name is its group's too."""

    name: str
    partitions: tuple[int, ...]
    """Of its input."""


PIPELINES = (
    # Two members share them, each with a transactional id of its own.
    Pipeline("storm-transform", tuple(range(PARTITIONS))),
    # One client that is assigned what it reads, as aiokafka does not say which generation commits.
    Pipeline("storm-transform-aiokafka", (0,)),
)
GROUP_PIPELINE, ASSIGNED_PIPELINE = PIPELINES


class Fate(Enum):
    """Of a transaction whose client knows it; the others are in doubt."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    REPLACED = "replaced"
    """Another producer had its id before it was to be committed."""
    COMMITTED_AFTER_ALL = "committed after it was replaced"


class Output(NamedTuple):
    """A record that a pipeline has written."""

    pipeline: str
    partition: int
    offset: int
    """Of the record that it was made from."""
    transaction: str

    def to_value(self) -> bytes:
        return json.dumps(self, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, value: bytes) -> "Output":
        return cls(*json.loads(value))


class Fates:
    """The fates of one client's transactions, as a file."""

    def __init__(self, directory: Path, name: str) -> None:
        self._file = (directory / f"transactions-{name}.jsonl").open("a", buffering=1)

    def write(self, transaction: str, fate: Fate) -> None:
        self._file.write(json.dumps([transaction, fate.value]) + "\n")


def read_fates(directory: Path) -> dict[str, Fate]:
    lines = (line for path in directory.glob("transactions-*.jsonl") for line in path.read_text().splitlines())
    return {transaction: Fate(fate) for transaction, fate in map(json.loads, lines)}


def complaints(
    inputs: Mapping[Partition, FinalLog], outputs: Mapping[int, Iterable[Output]], fates: Mapping[str, Fate]
) -> Iterator[str]:
    """Sentences about what pipelines did wrong; `outputs` are by partition, in order."""
    for transaction, fate in fates.items():
        if fate is Fate.COMMITTED_AFTER_ALL:
            yield f"transaction {transaction} was {fate.value}"
    for index in range(PARTITIONS):
        written = list(outputs.get(index, ()))
        for output in written:
            if fates.get(output.transaction) in (Fate.ABORTED, Fate.REPLACED):
                yield f"{output} is read, and its transaction was {fates[output.transaction].value}"
        for pipeline in PIPELINES:
            expected = [offset for offset, _ in inputs[TOPIC, index].records] if index in pipeline.partitions else []
            made = [output.offset for output in written if output.pipeline == pipeline.name]
            yield from _differences(f"{pipeline.name} of partition {index}", expected, made)


def _differences(what: str, expected: list[int], made: list[int]) -> Iterator[str]:
    if made == expected:
        return
    numbers = Counter(made)
    twice = sorted(offset for offset, number in numbers.items() if number > 1)
    missing, invented = sorted(set(expected) - set(made)), sorted(set(made) - set(expected))
    if twice or missing or invented:
        yield f"{what}: {_few(missing)} are missing, {_few(twice)} are there twice, {_few(invented)} were never read"
    else:
        yield f"{what}: out of order"


def _few(offsets: list[int]) -> str:
    return f"{len(offsets)} {offsets[:3]}"
