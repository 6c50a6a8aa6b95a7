"""`ottla produce`: lines of standard input or of files become records."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import click

from ottla.cli.arguments import parse_settings
from ottla.cli.doctor.findings import counted
from ottla.cli.failures import INTERRUPTED_STATUS
from ottla.cli.names import complete_topics, complete_transactional_ids
from ottla.cli.operations.produce import STDIN, Destination, MakeRecord, Tally, produce_lines
from ottla.cli.output import progress_bar
from ottla.cli.records import ProducerRecord, record_from_json
from ottla.cli.session import Session, broker_options, run_to_end

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--key", help="Key of every record.")
@click.option("--key-separator", metavar="TEXT", help=r"Text between key and value of each line; \t is a tab.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parse_settings,
    help="Header of every record; repeatable.",
)
@click.option(
    "--partition",
    metavar="N",
    type=click.IntRange(min=0),
    help="Default: by the hash of the key.",
)
@click.option("--null-marker", metavar="TEXT", help="Text that stands for a null value (a tombstone).")
@click.option("--from-json", is_flag=True, help="Each line is a JSON object as `ottla consume --json` writes it.")
@click.option(
    "--acks", type=click.Choice(("0", "1", "all")), default="all", show_default=True, help="Acknowledgements."
)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option(
    "--transactional-id", metavar="ID", shell_complete=complete_transactional_ids,
    help="Produce everything in one transaction; Ctrl-C and errors abort it.",
)  # fmt: skip
@click.option(
    "--transaction-timeout", "transaction_timeout_s", metavar="SECONDS", default=60, show_default=True,
    type=click.FloatRange(min=0, min_open=True), help="The broker aborts a transaction that takes longer.",
)  # fmt: skip
@broker_options
def produce(
    session: Session,
    topic: str,
    files: Sequence[str],
    key: str | None,
    key_separator: str | None,
    headers: dict[str, str],
    partition: int | None,
    null_marker: str | None,
    from_json: bool,
    acks: str,
    compression: str,
    transactional_id: str | None,
    transaction_timeout_s: float,
) -> None:
    """Produce every line of standard input, or of FILEs, as a record."""
    if from_json and (key is not None or key_separator is not None or null_marker is not None):
        raise click.UsageError("--from-json cannot be combined with --key, --key-separator or --null-marker")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator cannot be combined")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("--transactional-id needs --acks all")
    shape = _Shape(
        key=None if key is None else key.encode(),
        separator=None if key_separator is None else key_separator.replace("\\t", "\t").encode(),
        null_marker=None if null_marker is None else null_marker.encode(),
        headers=tuple((name, value.encode()) for name, value in headers.items()),
        partition=partition,
    )
    destination = Destination(
        topic,
        acks=acks,
        compression=None if compression == "none" else compression,
        transactional_id=transactional_id,
        transaction_timeout_ms=int(transaction_timeout_s * 1000),
    )
    make = shape.from_json if from_json else shape.from_line
    tally = run_to_end(_produced(session, destination, files or (STDIN,), make))
    _report(session, topic, tally)
    if tally.was_interrupted:
        sys.exit(INTERRUPTED_STATUS)


async def _produced(session: Session, destination: Destination, files: Sequence[str], make: MakeRecord) -> Tally:
    """With a progress bar, unless the lines are typed."""
    tally = Tally()
    is_typed = STDIN in files and sys.stdin.isatty()
    bar = progress_bar(_total_bytes(files), lambda: (tally.bytes_read, f"{tally.acknowledged:,} records"))
    async with nullcontext() if is_typed else bar:
        await produce_lines(session.config, destination, files, make, tally)
    return tally


def _total_bytes(files: Sequence[str]) -> int | None:
    """None for standard input, whose size is unknown."""
    return None if STDIN in files else sum(Path(file).stat().st_size for file in files)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a line becomes a message."""

    key: bytes | None
    separator: bytes | None
    null_marker: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None

    def from_line(self, line: bytes) -> ProducerRecord:
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise ValueError(f"has no key separator {self.separator.decode()!r}")
        return ProducerRecord(None if value == self.null_marker else value, key, self.headers, self.partition)

    def from_json(self, line: bytes) -> ProducerRecord:
        message = record_from_json(line)
        partition = message.partition if self.partition is None else self.partition
        return replace(message, headers=message.headers + self.headers, partition=partition)


def _report(session: Session, topic: str, tally: Tally) -> None:
    records = 0 if tally.was_aborted else tally.acknowledged
    if session.output.as_json:
        session.output.json({"topic": topic, "records": records, "seconds": round(tally.seconds, 3)})
    if tally.was_aborted:
        session.output.say(f"aborted the transaction of {tally.sent:,} records to {topic}")
        return
    rate = records / tally.seconds if tally.seconds else 0.0
    session.output.say(f"produced {counted(records, 'record')} to {topic} in {tally.seconds:.2f} s ({rate:,.0f}/s)")
