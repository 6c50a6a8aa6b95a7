"""Frames and queries of Spark's Kafka connector, with as little ceremony as a test wants."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster_processes import wait_for
from tests.pipeline.topics import Reachable

WITHIN_S = 60


def options_of(broker: Reachable, options: Mapping[str, object]) -> dict[str, str]:
    texts = {"kafka.bootstrap.servers": broker.bootstrap}
    for name, value in options.items():
        texts[name] = (
            json.dumps(value)
            if isinstance(value, dict)
            else str(value).lower()
            if value in (True, False)
            else str(value)
        )
    return texts


def batch(spark: Any, broker: Reachable, topic: str, **options: object) -> Any:
    """Underscores in names stand for dots: `kafka_isolation_level`."""
    named = {"subscribe": topic, **{name.replace("_", "."): value for name, value in options.items()}}
    return spark.read.format("kafka").options(**options_of(broker, named)).load()


def stream(spark: Any, broker: Reachable, topic: str, **options: object) -> Any:
    named = {"subscribe": topic, "startingOffsets": "earliest"}
    named |= {name.replace("_", "."): value for name, value in options.items()}
    return spark.readStream.format("kafka").options(**options_of(broker, named)).load()


def values_of(frame: Any) -> list[str]:
    """Sorted."""
    return sorted(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


class Batches:
    """Collects what a query processes, one list per micro-batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, frame: Any, _: int) -> None:
        self.batches.append(values_of(frame))

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches for value in batch)


def run_available(frame: Any, checkpoint: str) -> Batches:
    """AvailableNow: everything that is there, then the end."""
    batches = Batches()
    query = frame.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
    started = query.trigger(availableNow=True).start()
    assert started.awaitTermination(WITHIN_S), "the query does not end"
    return batches


class Running:
    """A query in short micro-batches, stopped at the end of the context."""

    def __init__(self, frame: Any, checkpoint: str) -> None:
        self.batches = Batches()
        writer = frame.writeStream.foreachBatch(self.batches).option("checkpointLocation", checkpoint)
        self.query = writer.trigger(processingTime="100 milliseconds").start()

    def wait_for(self, condition: Callable[[list[str]], bool]) -> list[str]:
        wait_for(lambda: self._failed() or condition(self.batches.values), WITHIN_S, lambda: str(self.batches.batches))
        return self.batches.values

    def _failed(self) -> bool:
        error = self.query.exception()
        if error is not None:
            raise error
        return False

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()
