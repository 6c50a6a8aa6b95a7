"""`ottla log`: the files of a data directory, without a broker."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ottla.cli.failures import ClientError
from ottla.cli.names import CommandGroup
from ottla.cli.operations.log_dump import Damage, as_json, as_line, dump
from ottla.cli.output import Output


@click.group(cls=CommandGroup)
def log() -> None:
    """Look at the files of a data directory, without a broker."""


@log.command("dump")
@click.argument(
    "paths", metavar="FILE|DIRECTORY...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option("--records", "with_records", is_flag=True, help="Also the records of each batch.")
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object for each line.")
def dump_files(paths: Sequence[Path], with_records: bool, is_json: bool) -> None:
    """Show what segments, indexes and producer snapshots hold, as Kafka's kafka-dump-log does.

    FILE is a .log, .index, .timeindex or .snapshot of a partition, of Ottla's or Kafka's; a running broker does not
    mind. DIRECTORY is that of a partition: all its segments. The exit status is 1 when a file is damaged.
    """
    damaged: list[str] = []
    for path in _files(paths):
        damage = Damage()
        try:
            if not Output(is_json).lines(_lines(path, damage, with_records=with_records, is_json=is_json)):
                return
        except ClientError as error:
            raise click.ClickException(str(error)) from error
        if damage.found is not None:
            damaged.append(f"{path} is damaged: {damage.found}")
    if damaged:
        raise click.ClickException("; ".join(damaged))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        segments = sorted(path.glob("*.log"))
        if not segments:
            raise click.ClickException(f"there are no segments in {path}: name the directory of a partition")
        yield from segments


def _lines(path: Path, damage: Damage, *, with_records: bool, is_json: bool) -> Iterator[str]:
    if not is_json:
        yield f"Dumping {path}"
    for fields in dump(path, damage, with_records=with_records):
        yield json.dumps(as_json(fields), ensure_ascii=False) if is_json else as_line(fields)
