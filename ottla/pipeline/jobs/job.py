"""What the entry points share: how they end, and how they show that they get on."""

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.failures import NO_TABLE, PipelineError, plainly, sentence_of

LOOK_EVERY_S = 1
# As shells count a process that SIGINT has ended: 128 and the signal's number.
INTERRUPTED_STATUS = 130


def run(main: Callable[[argparse.Namespace], None], parser: argparse.ArgumentParser) -> None:
    """Ends the process: with 1 and one sentence when the job could not be done."""
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with plainly():
            main(arguments)
    except PipelineError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        logging.disable(logging.CRITICAL)
        say("interrupted")
        sys.exit(INTERRUPTED_STATUS)


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def load_table(spark: SparkSession, path: str) -> DataFrame:
    """Raises PipelineError where there is none."""
    try:
        return spark.read.format("delta").load(path)
    except AnalysisException as error:
        if sentence_of(error) != NO_TABLE:
            raise
        raise PipelineError(f"there is no table at {path}") from error


def settings(values: list[str]) -> dict[str, str]:
    """KEY=VALUE texts as a dictionary. Raises PipelineError."""
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise PipelineError(f"{text} is not KEY=VALUE")
        found[key] = value
    return found


def follow(start: Callable[[], StreamingQuery]) -> int:
    """Starts a query, then until it ends, one line per micro-batch. Gives the number of rows. Ctrl-C and SIGTERM stop
    it between two, and end the process."""
    rows = 0
    seen = -1
    running = True
    query = start()
    is_second = False
    with _noted_signals() as noted:
        try:
            while running and not noted:
                try:
                    running = not query.awaitTermination(LOOK_EVERY_S)
                except StreamingQueryException as error:
                    if is_second or not _failed_to_report(error):
                        raise
                    query, is_second = start(), True
                    continue
                for progress in query.recentProgress:
                    if progress["batchId"] > seen:
                        seen = int(progress["batchId"])
                        rows += int(progress["numInputRows"])
                        _show(progress, rows)
            if noted:
                query.stop()
        except Exception:
            # Ctrl-C at a terminal is for Java too, which may have gone by now.
            if not noted:
                raise
        if noted:
            say("stopped; the next run goes on from here")
            sys.exit(INTERRUPTED_STATUS)
    return rows


def _failed_to_report(error: StreamingQueryException) -> bool:
    """Spark 4.1.1 fails where it reports on a batch that it has repeated after a crash (SPARK-55271). The batch is over
    by then, so that a query that is started again goes on behind it."""
    return all(words in str(error) for words in ("IterableOps.map", "Option.get()", "is null"))


@contextmanager
def _noted_signals() -> Generator[list[int]]:
    """Fills with signals as they come. PySpark's own handler calls Java while another call waits for its answer, and an
    exception out of a handler leaves such a call half done."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler is called so.
        # Py4J logs every call that Java does not answer any more, with a traceback; so does what tidies up at exit.
        logging.disable(logging.CRITICAL)
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(progress: Any, rows: int) -> None:
    new, took_ms = int(progress["numInputRows"]), progress["durationMs"].get("triggerExecution", 0)
    if new:
        say(f"batch {progress['batchId']}: {new:,} rows in {took_ms / 1000:.1f} s, {rows:,} in all")
