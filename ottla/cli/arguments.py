"""How partitions, replicas, settings and moments are written on the command line."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from time import time
from typing import Any, NamedTuple

import click

from ottla.cli.client import TopicPartition

DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
SHORT_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[smhdw])")
SHORT_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


class Seconds(click.FloatRange):
    """`15` or `15s`, for times elsewhere are written with their unit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        # click hands in the text, whatever its stub says.
        text: Any = value.removesuffix("s") if isinstance(value, str) else value
        return super().convert(text, param, ctx)


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


def parse_node_ids(text: str) -> tuple[int, ...]:
    """`ID,ID,...`, each once. Raises ValueError with a sentence."""
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_number, parts)) or len({*parts}) < len(parts):
        raise ValueError(f"{text!r} are not different node ids with commas between them")
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


def parse_settings(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """A click callback for repeated KEY=VALUE options."""
    settings: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, parameter)
        settings[key] = text
    return settings


def checked(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that turns the ValueError of `parse` into wrong usage."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def parse_topics(texts: Iterable[str]) -> dict[str, list[int]]:
    """`NAME` or `NAME:0,2`; raises ValueError with a sentence."""
    topics: dict[str, list[int]] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        partitions = numbers.split(",") if colon else []
        if not name or not all(number.isascii() and number.isdecimal() for number in partitions):
            raise ValueError(f"{text!r} is not TOPIC or TOPIC:PARTITION,...")
        topics[name] = [int(number) for number in partitions]
    return topics


def parse_age(text: str) -> int:
    """Milliseconds of a duration like `30s` or `5m`. Raises ValueError with a sentence."""
    age = SHORT_DURATION.fullmatch(text)
    if age is None:
        raise ValueError(f"{text!r} is not a duration like 30s, 5m or 12h")
    return round(float(age["number"]) * SHORT_UNITS[age["unit"]] * 1000)


def parse_moment(text: str) -> int:
    """Milliseconds since 1970 of a time, or of so long ago: `12h`, `PT12H`. Raises ValueError with a sentence."""
    age = SHORT_DURATION.fullmatch(text)
    if age is not None:
        return _ago(float(age["number"]) * SHORT_UNITS[age["unit"]])
    if text[:1] in "Pp":
        return _ago(parse_duration(text) / 1000)
    try:
        return parse_datetime(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a duration like 12h or 30m, nor a time like 2026-03-01T12:00") from None


def _ago(seconds: float) -> int:
    return max(0, round((time() - seconds) * 1000))


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970; a time without an offset is the local one. Raises ValueError with a sentence."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time like 2026-03-01T12:00:00 or 2026-03-01T12:00:00+01:00") from None
    return max(0, round(moment.timestamp() * 1000))


def parse_duration(text: str) -> int:
    """Milliseconds of an ISO 8601 duration of weeks to seconds. Raises ValueError with a sentence."""
    found = DURATION.fullmatch(text.upper())
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration like PT1H30M or P7D")
    seconds = sum(float(number) * SECONDS[unit] for unit, number in found.groupdict().items() if number)
    return round(seconds * 1000)


def parse_pattern(text: str) -> re.Pattern[str]:
    """A regular expression. Raises ValueError with a sentence."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
