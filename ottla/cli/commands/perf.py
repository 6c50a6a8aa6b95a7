"""`ottla perf`: how fast records are produced and consumed."""

import click

from ottla.cli.commands.produce import COMPRESSIONS
from ottla.cli.names import CommandGroup, complete_topics
from ottla.cli.operations.consume import Limits
from ottla.cli.operations.perf import PERCENTILES, Measured, measure_consume, measure_produce
from ottla.cli.operations.produce import Destination
from ottla.cli.operations.record_source import RecordSource, Start, Stop
from ottla.cli.session import Session, broker_options, run_to_end

# Beyond what brokers take.
RECORD_BYTES_MAX = 1 << 27


@click.group(cls=CommandGroup)
def perf() -> None:
    """Measure how fast records are produced and consumed.

    The client library of these commands is slower than a broker: compare brokers, not clients, with them.
    """


@perf.command("produce")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--records", metavar="N", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option(
    "--record-size", metavar="BYTES", type=click.IntRange(0, RECORD_BYTES_MAX), default=1024, show_default=True
)
@click.option(
    "--throughput", metavar="N", type=click.FloatRange(min=0, min_open=True), help="Send at most N records a second."
)
@click.option("--acks", type=click.Choice(("0", "1", "all")), default="all", show_default=True)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@broker_options
def produce(
    session: Session,
    topic: str,
    records: int,
    record_size: int,
    throughput: float | None,
    acks: str,
    compression: str,
) -> None:
    """Produce records, and show their rate and how long each took to be acknowledged."""
    destination = Destination(topic, acks=acks, compression=None if compression == "none" else compression)
    work = measure_produce(
        session.config, destination, records=records, record_bytes=record_size, throughput=throughput
    )
    measured = run_to_end(work)
    latencies = {f"p{percentile:g}": measured.latency_ms(percentile) for percentile in PERCENTILES}
    latencies |= {"max": measured.latency_ms(100), "mean": measured.mean_latency_ms()}
    if session.output.as_json:
        rounded = {name: round(value, 3) for name, value in latencies.items()}
        session.output.json({**_rates(measured), "latency_ms": rounded})
    session.output.say(f"{_sentence(measured, 'sent')}; latency in ms: {_listed(latencies)}")


@perf.command("consume")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--records", metavar="N", type=click.IntRange(min=1), help="Stop after N records; default: at the end.")
@broker_options
def consume(session: Session, topics: tuple[str, ...], records: int | None) -> None:
    """Consume topics from their beginning, and show the rate."""
    source = RecordSource(topics, start=Start(from_beginning=True), stop=Stop(at_end=True))
    measured = run_to_end(measure_consume(session.config, source, Limits(max_messages=records)))
    if session.output.as_json:
        session.output.json(_rates(measured))
    session.output.say(_sentence(measured, "consumed"))


def _rates(measured: Measured) -> dict[str, object]:
    return {
        "records": measured.records,
        "bytes": measured.size_bytes,
        "seconds": round(measured.seconds, 3),
        "records_per_s": round(measured.records_per_s, 1),
        "mebibytes_per_s": round(measured.mebibytes_per_s, 2),
    }


def _sentence(measured: Measured, verb: str) -> str:
    return (
        f"{measured.records:,} records {verb} in {measured.seconds:.2f} s, {measured.records_per_s:,.1f} records/s "
        f"({measured.mebibytes_per_s:.2f} MiB/s)"
    )


def _listed(latencies: dict[str, float]) -> str:
    return ", ".join(f"{value:.1f} {name}" for name, value in latencies.items())
