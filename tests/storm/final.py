"""When the storm is over: what the group has read, and what is stored."""

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cluster_processes import wait_for
from tests.histories.events import FinalLog
from tests.histories.files import HistoryFile
from tests.histories.violations import Partition
from tests.storm.clients.client import to_value
from tests.storm.clients.watcher import watch, watch_commits
from tests.storm.settings import GROUP, PARTITIONS, TOPIC

ANSWER_WITHIN_S = 20
DRAINED_WITHIN_S = 90
READ_WITHIN_S = 60


def wait_until_drained(bootstrap: str, history: HistoryFile) -> None:
    """Until the group has read and committed everything."""
    consumer = _consumer(bootstrap)
    ends = {index: _offsets(consumer, index)[1] for index in range(PARTITIONS)}
    committed: dict[int, int] = {}

    def is_drained() -> bool:
        committed.update(watch_commits(consumer, history))
        return all(committed.get(index, -1) == end or end == 0 for index, end in ends.items())

    try:
        wait_for(is_drained, DRAINED_WITHIN_S, lambda: f"the group committed {committed}, the ends are {ends}")
    finally:
        consumer.close()


def read_back(bootstrap: str, history: HistoryFile) -> dict[Partition, FinalLog]:
    """Everything that consumers can read; and once more, into the history, the ends and the committed offsets."""
    consumer = _consumer(bootstrap)
    try:
        watch("reader", consumer, history)
        logs = {(TOPIC, index): _read_log(consumer, index) for index in range(PARTITIONS)}
        watch("reader", consumer, history)
        return logs
    finally:
        consumer.close()


def _read_log(consumer: Consumer, index: int) -> FinalLog:
    start, end = _offsets(consumer, index)
    consumer.assign([TopicPartition(TOPIC, index, start)])
    records: list[tuple[int, str]] = []
    deadline = time.monotonic() + READ_WITHIN_S
    while start != end and (not records or records[-1][0] + 1 < end):
        assert time.monotonic() < deadline, f"partition {index} was read to {records[-1:]} of {end}"
        for message in consumer.consume(1000, 0.1):
            payload, offset = message.value(), message.offset()
            assert message.error() is None, message.error()
            assert payload is not None
            assert offset is not None
            records.append((offset, to_value(payload)))
    return FinalLog(start, tuple(records))


def _offsets(consumer: Consumer, index: int) -> tuple[int, int]:
    """Start and end of a partition; asked again where its leader has just changed."""
    answers: list[tuple[int, int]] = []

    def is_answered() -> bool:
        try:
            answer = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), ANSWER_WITHIN_S)
        except KafkaException:
            return False
        if answer is not None:
            answers.append(answer)
        return answer is not None

    wait_for(is_answered, ANSWER_WITHIN_S, f"the offsets of partition {index} were not answered")
    return answers[0]


def _consumer(bootstrap: str) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "error", "log_level": 2}
    return Consumer({**settings, "enable.auto.commit": False})
