"""The replicas of a partition as they lie on disk, compared byte for byte (R12). Reads Kafka's format by itself."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.histories.violations import Partition

# Of a batch, format 2: base offset, length of what follows, leader epoch, magic, CRC, attributes, last offset delta.
HEADER = struct.Struct(">qiibIhi")
# Behind that and two timestamps: producer id and epoch.
PRODUCER = struct.Struct(">qh")
PRODUCER_AT = HEADER.size + 16
LENGTH_AT = 12
"""How much of a batch stands before what its length counts."""


@dataclass(frozen=True)
class Batch:
    base_offset: int
    end_offset: int
    leader_epoch: int
    content: bytes


def batches(directory: Path) -> Iterator[Batch]:
    """The batches of one replica, over all its segments. ValueError where a file ends within one."""
    for segment in sorted(directory.glob("*.log")):
        content, position = segment.read_bytes(), 0
        while position < len(content):
            if position + HEADER.size > len(content):
                raise ValueError(f"{segment} ends within the header of a batch")
            base, length, epoch, _, _, _, last = HEADER.unpack_from(content, position)
            end = position + LENGTH_AT + length
            if end > len(content):
                raise ValueError(f"{segment} ends within a batch")
            yield Batch(base, base + last + 1, epoch, content[position:end])
            position = end


def writers(directory: Path) -> dict[int, tuple[int, int]]:
    """Producer id and epoch of each record of a replica, by its offset."""
    return {
        offset: PRODUCER.unpack_from(batch.content, PRODUCER_AT)
        for batch in batches(directory)
        for offset in range(batch.base_offset, batch.end_offset)
    }


def high_watermarks(data_dir: Path) -> dict[Partition, int]:
    """As the broker noted them when it stopped."""
    lines = (data_dir / "replication-offset-checkpoint").read_text().splitlines()[2:]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in (line.split() for line in lines)}


def differences(data_dirs: Sequence[Path], ends: Mapping[Partition, int]) -> list[str]:
    """How the replicas of each partition differ below its end, a sentence for each replica that does."""
    return [
        sentence
        for (topic, index), end in sorted(ends.items())
        for sentence in _differences([directory / f"{topic}-{index}" for directory in data_dirs], end)
    ]


def _differences(directories: Sequence[Path], end: int) -> Iterator[str]:
    first: list[Batch] | None = None
    for directory in directories:
        try:
            stored = [batch for batch in batches(directory) if batch.base_offset < end]
        except ValueError as error:
            yield str(error)
            continue
        reached = stored[-1].end_offset if stored else 0
        if reached < end:
            yield f"{directory} ends at {reached}, the high watermark is {end}"
        elif first is None:
            first = stored
        elif (difference := _first_difference(first, stored)) is not None:
            yield f"{directory} differs from {directories[0]}: {difference}"


def _first_difference(ours: Sequence[Batch], theirs: Sequence[Batch]) -> str | None:
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return f"{_named(other)} where the other has {_named(one)}"
    return f"{len(theirs)} batches and {len(ours)}" if len(ours) != len(theirs) else None


def _named(batch: Batch) -> str:
    return f"a batch of offsets {batch.base_offset} to {batch.end_offset - 1} in epoch {batch.leader_epoch}"
