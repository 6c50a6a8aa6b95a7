"""A member of a group that consumes, transforms and produces, of confluent-kafka.

Now and then it is replaced by another producer with its transactional id, and goes on as if it had not been.
"""

import itertools
import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.storm.clients.client import Client
from tests.storm.clients.watchdog import HANGS_AFTER_S, Watchdog, begin_again
from tests.storm.settings import METADATA_REFRESH_MS, OUTPUT, TOPIC, TRANSACTION_TIMEOUT_MS
from tests.storm.transforms import GROUP_PIPELINE, Fate, Fates, Output

BATCH = 500
# Few large transactions cost a busy machine less than many small ones.
GATHERING_S = 1
ANSWER_WITHIN_S = 5
GIVE_UP_AFTER_S = 45
ABORTS, IS_REPLACED = 0.1, 0.04


def run(client: Client) -> None:
    transformer = _Transformer(client)
    try:
        transformer.run()
    finally:
        transformer.close()


class _IsReplacedError(Exception):
    """Another producer has to take over."""


class _Transformer:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._log = logging.getLogger(client.name)
        self._fates = Fates(client.directory, client.name)
        self._chance = random.Random(client.name)
        # Names of transactions: no two programs have one in common.
        self._names = (f"{client.name}.{time.time_ns()}/{number}" for number in itertools.count())
        self._watchdog = Watchdog(HANGS_AFTER_S, partial(begin_again, client.name))
        self._has_rebalanced = False
        self._replaced: tuple[Producer, str] | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": client.bootstrap,
                "group.id": GROUP_PIPELINE.name,
                "client.id": client.name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": "range",
                "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        while not self._client.stopping.is_set():
            self._watchdog.alive()
            try:
                producer = self._start_producer()
                self._see_the_replaced_one_fail()
                self._rewind()
                while not self._client.stopping.is_set():
                    self._watchdog.alive()
                    self._transform(producer)
            except _IsReplacedError:
                continue
            except KafkaException as error:
                self._log.warning("begins again after %s", error)

    def close(self) -> None:
        self._consumer.close()
        self._watchdog.stop()

    def _start_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._client.bootstrap,
                "transactional.id": self._client.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        _until_answered(producer.init_transactions)
        return producer

    # One transaction.

    def _transform(self, producer: Producer) -> None:
        self._has_rebalanced = False
        messages = []
        for message in self._consumer.consume(BATCH, GATHERING_S):
            if message.error() is None:
                messages.append(message)
            else:
                self._log.warning("got %s", message.error())
        if self._has_rebalanced:
            # What was handed out before the rebalance is another member's, perhaps.
            self._rewind()
            return
        if not messages:
            return
        transaction = next(self._names)
        producer.begin_transaction()
        try:
            self._write(producer, transaction, messages)
            self._end(producer, transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._log.warning("aborts after %s", error)
            self._abort(producer, transaction)

    def _write(self, producer: Producer, transaction: str, messages: Sequence[Message]) -> None:
        offsets: dict[int, int] = {}
        for message in messages:
            index, offset = message.partition(), message.offset()
            assert index is not None
            assert offset is not None
            value = Output(GROUP_PIPELINE.name, index, offset, transaction).to_value()
            producer.produce(OUTPUT, value, partition=index)
            offsets[index] = offset + 1
        positions = [TopicPartition(TOPIC, index, offset) for index, offset in offsets.items()]
        metadata = self._consumer.consumer_group_metadata()
        _until_answered(lambda within_s: producer.send_offsets_to_transaction(positions, metadata, within_s))

    def _end(self, producer: Producer, transaction: str) -> None:
        chance = self._chance.random()
        if chance < ABORTS:
            self._abort(producer, transaction)
        elif chance < ABORTS + IS_REPLACED:
            self._replaced = producer, transaction
            raise _IsReplacedError
        else:
            _until_answered(producer.commit_transaction)
            self._fates.write(transaction, Fate.COMMITTED)

    def _abort(self, producer: Producer, transaction: str) -> None:
        _until_answered(producer.abort_transaction)
        self._fates.write(transaction, Fate.ABORTED)
        self._rewind()

    def _see_the_replaced_one_fail(self) -> None:
        if self._replaced is None:
            return
        producer, transaction = self._replaced
        self._replaced = None
        try:
            producer.produce(OUTPUT, Output(GROUP_PIPELINE.name, 0, -1, transaction).to_value(), partition=0)
            producer.commit_transaction(ANSWER_WITHIN_S)
        except KafkaException:
            self._fates.write(transaction, Fate.REPLACED)
        else:
            self._fates.write(transaction, Fate.COMMITTED_AFTER_ALL)

    # Its place in the input.

    def _rewind(self) -> None:
        """Goes on after what is committed; nothing is where that is not answered any more."""
        self._assign(self._consumer, self._consumer.assignment())

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._has_rebalanced = True
        self._assign(consumer, partitions)

    def _revoked(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._has_rebalanced = True
        consumer.unassign()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        asked = [TopicPartition(TOPIC, each.partition) for each in partitions]
        while not self._client.stopping.is_set():
            try:
                found = consumer.committed(asked, ANSWER_WITHIN_S)
            except KafkaException:
                continue
            if all(each.error is None for each in found):
                starts = [max(each.offset, OFFSET_BEGINNING) for each in found]
                placed = zip(found, starts, strict=True)
                consumer.assign([TopicPartition(TOPIC, each.partition, start) for each, start in placed])
                return


def _until_answered(call: Callable[[float], Any]) -> None:
    """Again while librdkafka says that this is what to do. After long, another producer has to take over."""
    give_up_at = time.monotonic() + GIVE_UP_AFTER_S
    while True:
        try:
            call(ANSWER_WITHIN_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > give_up_at:
                raise
        else:
            return
