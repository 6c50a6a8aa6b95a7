"""How partitions and their replicas are written on the command line."""

from typing import NamedTuple

import click

from ottla.cli.client import TopicPartition


class PartitionArgument(NamedTuple):
    """TOPIC, TOPIC:PARTITION or TOPIC:PARTITION=REPLICAS; what was not written is None."""

    topic: str
    partition: int | None
    replicas: tuple[int, ...] | None

    @property
    def key(self) -> TopicPartition:
        assert self.partition is not None, "asked for of a partition only"
        return self.topic, self.partition


def parse_partition(text: str) -> PartitionArgument:
    """Raises click.UsageError."""
    place, equals, brokers = text.partition("=")
    topic, colon, partition = place.partition(":")
    if not topic or (colon and not _is_number(partition)) or (equals and not colon):
        raise click.UsageError(f"{text!r} is not TOPIC:PARTITION" + ("=ID,ID,..." if equals else ""))
    return PartitionArgument(topic, int(partition) if colon else None, parse_replicas(brokers) if equals else None)


def parse_replicas(text: str) -> tuple[int, ...]:
    """`ID,ID,...`; raises click.UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_number, parts)):
        raise click.UsageError(f"{text!r} are not node ids with commas between them")
    return tuple(map(int, parts))


def parse_assignments(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[int, tuple[int, ...]]:
    """A click callback for repeated PARTITION=ID,ID,... options."""
    assignments: dict[int, tuple[int, ...]] = {}
    for value in values:
        partition, equals, replicas = value.partition("=")
        if not equals or not _is_number(partition):
            raise click.BadParameter(f"{value!r} is not PARTITION=ID,ID,...", context, parameter)
        if int(partition) in assignments:
            raise click.BadParameter(f"partition {partition} is given twice", context, parameter)
        assignments[int(partition)] = parse_replicas(replicas)
    return assignments


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
