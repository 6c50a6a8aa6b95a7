"""A client that only asks: how long the partitions are, and what the group has committed."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.histories.events import NONE_COMMITTED, CommitRead, EndSeen
from tests.histories.files import HistoryFile, now_us
from tests.storm.clients.client import Client, to_commit_id
from tests.storm.settings import GROUP, PARTITIONS, TOPIC

ASK_EVERY_S = 0.2
ANSWER_WITHIN_S = 5


def run(client: Client) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": client.bootstrap,
            "group.id": GROUP,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
    )
    while not client.stopping.wait(ASK_EVERY_S):
        watch(client.name, consumer, client.history)
    consumer.close()


def watch(name: str, consumer: Consumer, history: HistoryFile) -> None:
    """Asks everything once and writes down what is answered."""
    for index in range(PARTITIONS):
        asked_us = now_us()
        try:
            answer = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), ANSWER_WITHIN_S)
        except KafkaException:
            continue
        if answer is not None:
            history.write(EndSeen(asked_us, now_us(), name, TOPIC, index, answer[1]))
    watch_commits(consumer, history)


def watch_commits(consumer: Consumer, history: HistoryFile) -> dict[int, int]:
    """The group's committed offsets, as far as they were answered, by partition."""
    asked_us = now_us()
    try:
        found = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], ANSWER_WITHIN_S)
    except KafkaException:
        return {}
    answered = [one for one in found if one.error is None]
    for one in answered:
        commit = max(one.offset, NONE_COMMITTED), to_commit_id(one.metadata)
        history.write(CommitRead(asked_us, now_us(), GROUP, TOPIC, one.partition, *commit))
    return {one.partition: one.offset for one in answered}
