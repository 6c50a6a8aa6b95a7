"""What goes wrong in a job, in one plain sentence each."""

import re
from collections.abc import Generator
from contextlib import contextmanager

from ottla.pipeline.versions import installed_spark, packages


class PipelineError(Exception):
    """The message is for the user."""


NO_TABLE = "there is no table at the path given"
_SENTENCES = (
    (
        r"Failed to find data source|DATA_SOURCE_NOT_FOUND|ClassNotFoundException",
        "Spark does not find its Kafka connector or Delta Lake: add --packages "
        + ",".join(packages(installed_spark() or "")),
    ),
    (
        r"Could not parse Master URL",
        "Spark does not understand what --master says: local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT",
    ),
    (
        r"Cannot call methods on a stopped SparkContext|All masters are unresponsive",
        "Spark's master does not answer, or has ended the job: is it running at the address that --master gives?",
    ),
    (
        r"UnknownTopicOrPartition|does not host this topic",
        "a topic that the job reads or writes does not exist, or has been deleted",
    ),
    (
        r"TimeoutException|Timeout of \d+ms expired|not present in metadata",
        "the broker does not answer: is every address that it advertises reachable from here and from the executors?",
    ),
    (
        r"KAFKA_DATA_LOSS|data may be lost|aged out|Some data may have been lost",
        "records that were not read yet are gone from the topic (retention); --allow-data-loss goes on without them",
    ),
    (
        r"DELTA_CONCURRENT|ConcurrentAppend|ConcurrentTransaction",
        "another job is writing to the same table",
    ),
    (
        r"DELTA_TABLE_NOT_FOUND|PATH_NOT_FOUND|PATH_DOES_NOT_EXIST|is not a Delta table|DELTA_MISSING_DELTA_TABLE",
        NO_TABLE,
    ),
    (
        r"DELTA_FAILED_TO_MERGE_FIELDS|schema mismatch|_LEGACY_ERROR_TEMP_DELTA_0007",
        "the table has other columns than the job writes: give it a path of its own",
    ),
    (
        r"No space left on device",
        "the disk is full",
    ),
)


def sentence_of(error: BaseException) -> str | None:
    """What the user reads about an error of Spark; None for one that is not known."""
    text = str(error)
    return next((sentence for pattern, sentence in _SENTENCES if re.search(pattern, text)), None)


@contextmanager
def plainly() -> Generator[None]:
    """Known errors of Spark become a PipelineError; others go on as they are."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        raise PipelineError(sentence) from error
