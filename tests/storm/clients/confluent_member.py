"""A member of the group, of confluent-kafka."""

import time
from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.histories.events import NONE_COMMITTED
from tests.histories.files import now_us
from tests.storm.clients.client import Client, to_commit_id
from tests.storm.clients.positions import Positions
from tests.storm.clients.watchdog import HANGS_AFTER_S, Watchdog, begin_again
from tests.storm.settings import GROUP, METADATA_REFRESH_MS, TOPIC

COMMIT_EVERY_S = 0.3
ANSWER_WITHIN_S = 10


def run(client: Client) -> None:
    watchdog = Watchdog(HANGS_AFTER_S, partial(begin_again, client.name))
    positions = Positions(client)
    consumer = Consumer(
        {
            "bootstrap.servers": client.bootstrap,
            "group.id": GROUP,
            "client.id": client.name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "range",
            "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
    )

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        asked_us, commits = _committed(client, consumer, partitions)
        for partition, (offset, commit_id) in zip(partitions, commits, strict=True):
            partition.offset = positions.begin(partition.partition, offset, commit_id, asked_us)
        consumer.assign(partitions)

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            positions.forget(partition.partition)

    consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    try:
        _consume(client, consumer, positions, watchdog)
        watchdog.alive()
    except BaseException:
        # Another program in its place would hide what went wrong.
        watchdog.stop()
        raise
    finally:
        consumer.close()
        watchdog.stop()


def _consume(client: Client, consumer: Consumer, positions: Positions, watchdog: Watchdog) -> None:
    commit_at = 0.0
    while not client.stopping.is_set():
        watchdog.alive()
        for message in consumer.consume(500, 0.2):
            payload, partition, offset = message.value(), message.partition(), message.offset()
            if message.error() is None:
                assert payload is not None
                assert partition is not None
                assert offset is not None
                positions.read(partition, offset, payload)
        if time.monotonic() >= commit_at:
            _commit(consumer, positions)
            commit_at = time.monotonic() + COMMIT_EVERY_S


def _commit(consumer: Consumer, positions: Positions) -> None:
    commits = positions.begin_commit()
    if not commits:
        return
    offsets = [TopicPartition(TOPIC, index, offset, commit_id) for index, (offset, commit_id) in commits.items()]
    try:
        answers = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException:
        return
    assert answers is not None
    done = {answer.partition for answer in answers if answer.error is None}
    positions.committed({index: commit for index, commit in commits.items() if index in done})


def _committed(
    client: Client, consumer: Consumer, partitions: list[TopicPartition]
) -> tuple[int, list[tuple[int, str]]]:
    """When they were asked for, and each one's offset and commit id; until the coordinator answers."""
    while True:
        asked_us = now_us()
        try:
            found = consumer.committed(partitions, ANSWER_WITHIN_S)
        except KafkaException:
            if client.stopping.is_set():
                raise
            continue
        if all(one.error is None for one in found):
            return asked_us, [(max(one.offset, NONE_COMMITTED), to_commit_id(one.metadata)) for one in found]
