"""Figures of the pipeline: `make bench-pipeline`.

The archive beside a bare confluent-kafka consumer that reads the same topic in the same run, and the observatory over a
million events. Needs the extra [spark], Java and Spark's jars.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from benchmarks.processes import cpu_seconds
from ottla.pipeline import archive
from ottla.pipeline.jobs.job import load_table
from ottla.pipeline.observatory.tables import write_tables
from ottla.pipeline.session import fit_to_size
from ottla.pipeline.versions import DELTA_SETTINGS, installed_spark, packages
from tests.served import ServedBroker

TOPIC = "bench"
RECORD_BYTES = 100
MEMBERS = 3
PARTITIONS = 6
# The events of one rebalance of the generator below.
EVENTS_PER_REBALANCE = 3 + 3 * MEMBERS


class Taken(NamedTuple):
    wall_s: float
    processor_s: float

    @property
    def cost(self) -> str:
        """Depends less on what else the machine does."""
        return f"{self.processor_s:.1f} processor seconds of Spark"


def measured(spark: SparkSession, work: Callable[[], None]) -> Taken:
    assert spark.sparkContext._jvm is not None
    spark_pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    began_s, spent_s = perf_counter(), cpu_seconds(spark_pid)
    work()
    return Taken(perf_counter() - began_s, cpu_seconds(spark_pid) - spent_s)


def main(records: int, events: int) -> None:
    with TemporaryDirectory(prefix="ottla-bench-") as directory:
        spark = session()
        bench_archive(spark, Path(directory), records)
        bench_observatory(spark, Path(directory), events)
        spark.stop()


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[*]").appName("ottla benchmarks")
    settings = {
        **DELTA_SETTINGS,
        "spark.jars.packages": ",".join(packages(installed_spark() or "")),
        "spark.ui.enabled": "false",
    }
    for key, value in {**settings, "spark.driver.memory": "3g", "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    fit_to_size(made)
    return made


def bench_archive(spark: SparkSession, directory: Path, records: int) -> None:
    """Twice so many records: Java compiles what it runs during the first half, as in a job that ends soon, and runs at
    its full speed in the second, as in one that goes on."""
    table = directory / "table"
    with ServedBroker(directory / "broker", {"num.partitions": str(PARTITIONS)}) as broker:
        taken = []
        for _ in range(2):
            fill(broker.bootstrap, records)
            taken.append(measured(spark, lambda: archived(spark, broker.bootstrap, table)))
        read_s = min(consumed(broker.bootstrap, 2 * records) for _ in range(2))
    rows = spark.read.format("delta").load(str(table)).count()
    assert rows == 2 * records, f"{rows} rows of {2 * records} records"
    consumer_rate = 2 * records / read_s
    print(f"bare confluent-kafka consumer, {RECORD_BYTES}-byte records: {consumer_rate:,.0f} records/s")
    for name, one in zip(("at first", "then"), taken, strict=True):
        rate = records / one.wall_s
        print(f"archive, {name}: {rate:,.0f} rows/s, {rate / consumer_rate:.2f} of the consumer, {one.cost}")


def fill(bootstrap: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.num.messages": 10_000})
    value = bytes(RECORD_BYTES)
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def consumed(bootstrap: str, records: int) -> float:
    """Seconds for all records of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    began, count = perf_counter(), 0
    while count < records:
        count += len(consumer.consume(5000, 10))
    took = perf_counter() - began
    consumer.close()
    return took


def archived(spark: SparkSession, bootstrap: str, table: Path) -> None:
    """What the table does not have yet."""
    rows = archive.archived(archive.read_topics(spark, bootstrap, [TOPIC], {}))
    query = archive.write_table(rows, str(table), f"{table}/_checkpoint", once=True, interval_s=1)
    query.awaitTermination()


def bench_observatory(spark: SparkSession, directory: Path, events: int) -> None:
    lines, table = directory / "events.json", f"{directory}/events"
    with lines.open("w") as file:
        file.writelines(f"{json.dumps(event)}\n" for event in some_events(events))
    texts = spark.read.text(str(lines))
    texts.selectExpr("'ottla.events' AS topic", "CAST(value AS BINARY) AS value").write.format("delta").save(table)
    taken = measured(
        spark,
        lambda: write_tables(
            load_table(spark, table), f"{directory}/tables", no_progress_ms=60_000, report=lambda _: None
        ),
    )
    print(
        f"observatory: {events:,} events in {taken.wall_s:.1f} s, {events / taken.wall_s:,.0f} events/s, {taken.cost}"
    )


def some_events(count: int, groups: int = 500) -> Iterator[dict[str, Any]]:
    """Rebalances of many groups, one after the other, each with all that its members do."""
    seq = 0
    generations = [0] * groups
    for number in range(count // EVENTS_PER_REBALANCE + 1):
        group = number % groups
        generation = generations[group]
        generations[group] += 1
        for event in one_rebalance(f"group-{group}", generation, 1_700_000_000_000 + 10 * number):
            if seq == count:
                return
            yield {"v": 1, "broker": 1, "run": 1, "seq": seq, **event}
            seq += 1


def one_rebalance(group: str, generation: int, at_ms: int) -> Iterator[dict[str, Any]]:
    members = [f"{group}-member-{number}" for number in range(MEMBERS)]

    def event(event_type: str, after_ms: int, **fields: Any) -> dict[str, Any]:
        moment = {"wall_ms": at_ms + after_ms, "mono_ms": at_ms + after_ms}
        return {"type": event_type, **moment, "group_id": group, **fields}

    yield event("rebalance_started", 0, generation=generation, cause="member joined", member_id=members[0])
    for number, member in enumerate(members):
        yield event("member_rejoined", number, generation=generation, member_id=member, client_id="app", owned={})
    yield event("generation_started", 3, generation=generation + 1, member_ids=members, join_phase_ms=3)
    for number, member in enumerate(members):
        yield event("member_synced", 4, generation=generation + 1, member_id=member, sync_phase_ms=1)
        share = {"t": [2 * ((number + generation) % MEMBERS), 2 * ((number + generation) % MEMBERS) + 1]}
        yield event("member_assigned", 5, generation=generation + 1, member_id=member, client_id="app", assigned=share)
    yield event("generation_completed", 5, generation=generation + 1, sync_phase_ms=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    arguments = parser.parse_args()
    sys.exit(main(arguments.records, arguments.events))
