"""When the storm is over: what pipelines have committed, and that no transaction stays open."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.cluster_processes import wait_for
from tests.storm.settings import OUTPUT, PARTITIONS, TOPIC, TRANSACTION_TIMEOUT_MS
from tests.storm.transforms import GROUP_PIPELINE, PIPELINES, Output, Pipeline

ANSWER_WITHIN_S = 20
# A client that hangs is noticed after a minute.
DRAINED_WITHIN_S = 150
READ_WITHIN_S = 60
LEFT_OPEN_MS = 6000
# Of a pipeline that was replaced at last. The look for overdue transactions comes every two seconds, then markers are
# written.
OPEN_S_MAX = TRANSACTION_TIMEOUT_MS / 1000 + 10
NEVER_COMMITTED = Output(GROUP_PIPELINE.name, 0, -1, "left open")


def wait_until_drained(bootstrap: str) -> None:
    """Until each pipeline has committed the ends of its input."""
    for pipeline in PIPELINES:
        consumer = _consumer(bootstrap, pipeline.name)
        try:
            _wait_for_pipeline(consumer, pipeline)
        finally:
            consumer.close()


def _wait_for_pipeline(consumer: Consumer, pipeline: Pipeline) -> None:
    ends = {index: _end(consumer, TOPIC, index) for index in pipeline.partitions}
    committed: dict[int, int] = {}

    def is_drained() -> bool:
        try:
            found = consumer.committed([TopicPartition(TOPIC, index) for index in ends], ANSWER_WITHIN_S)
        except KafkaException:
            return False
        committed.update({each.partition: each.offset for each in found if each.error is None})
        return all(committed.get(index, -1) == end or end == 0 for index, end in ends.items())

    wait_for(is_drained, DRAINED_WITHIN_S, lambda: f"{pipeline.name} committed {committed}, the ends are {ends}")


@contextmanager
def left_open(bootstrap: str) -> Iterator[float]:
    """A transaction whose producer writes one record to each partition and is silent then; since when it is open."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": NEVER_COMMITTED.transaction,
            "transaction.timeout.ms": LEFT_OPEN_MS,
            "log_level": 2,
        }
    )
    producer.init_transactions(ANSWER_WITHIN_S)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce(OUTPUT, NEVER_COMMITTED.to_value(), partition=index)
    producer.flush(ANSWER_WITHIN_S)
    yield time.monotonic()


def wait_until_stable(bootstrap: str, since: float) -> float:
    """Until the last stable offset of each partition is its high watermark; how long after `since` that was."""
    committed = _consumer(bootstrap, "stable", isolation_level="read_committed")
    everything = _consumer(bootstrap, "stable", isolation_level="read_uncommitted")
    unstable: dict[int, tuple[int, int]] = {}

    def is_stable() -> bool:
        unstable.clear()
        for index in range(PARTITIONS):
            stable, end = _end(committed, OUTPUT, index), _end(everything, OUTPUT, index)
            if stable != end:
                unstable[index] = stable, end
        return not unstable

    within_s = since + OPEN_S_MAX - time.monotonic()
    try:
        wait_for(is_stable, within_s, lambda: f"after {OPEN_S_MAX:g} s not stable, by partition: {unstable}")
    finally:
        committed.close()
        everything.close()
    return time.monotonic() - since


def read_back(bootstrap: str) -> dict[int, list[Output]]:
    """What readers of committed records see, by partition."""
    consumer = _consumer(bootstrap, "stable", isolation_level="read_committed")
    try:
        return {index: _read(consumer, index) for index in range(PARTITIONS)}
    finally:
        consumer.close()


def _read(consumer: Consumer, index: int) -> list[Output]:
    outputs: list[Output] = []
    consumer.assign([TopicPartition(OUTPUT, index, 0)])
    deadline = time.monotonic() + READ_WITHIN_S
    while True:
        assert time.monotonic() < deadline, f"{OUTPUT}-{index} was not read to its end: {outputs[-1:]}"
        for message in consumer.consume(1000, 0.1):
            error, value = message.error(), message.value()
            if error is None:
                assert value is not None
                outputs.append(Output.parse(value))
            elif error.code() == KafkaError._PARTITION_EOF:
                return outputs


def _end(consumer: Consumer, topic: str, index: int) -> int:
    """Asked again where the leader has just changed."""
    ends: list[int] = []

    def is_answered() -> bool:
        try:
            answer = consumer.get_watermark_offsets(TopicPartition(topic, index), ANSWER_WITHIN_S)
        except KafkaException:
            return False
        ends.extend([] if answer is None else answer[1:])
        return bool(ends)

    wait_for(is_answered, ANSWER_WITHIN_S, f"the end of {topic}-{index} was not answered")
    return ends[0]


def _consumer(bootstrap: str, group: str, isolation_level: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation_level,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
