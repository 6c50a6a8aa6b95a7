"""The logs of this broker's topics, made as the metadata says.

Many logs are made a few at a time, so that other clients are served in between. Whoever asks for a partition whose log
is still to come is told NOT_LEADER_OR_FOLLOWER and asks again, as while a leader moves.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from ottla.cluster.image import CONSUMER_OFFSETS, TopicInfo
from ottla.protocol.errors import KafkaError, KafkaStorageError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

# Some ten milliseconds' worth.
LOGS_AT_ONCE = 25

Failures = dict[str, KafkaError]
"""The topics for which the disk would not play along."""


class TopicLogs:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def make_all(self, topics: Mapping[str, TopicInfo]) -> None:
        """Open or make the logs of these topics, here and now; a failure is logged."""
        failed: Failures = {}
        for topic, index in _partitions(topics):
            self._host(topic, index, failed)

    def make(self, topics: Mapping[str, TopicInfo], done: Callable[[Failures], None]) -> None:
        """Make the logs of these topics, which the image has; `done` is called at once if they are few.

        A stop of the broker cuts this short; its next start makes what is missing."""
        failed: Failures = {}
        left = _partitions(topics)
        missing = sum(len(topic.partitions) for topic in topics.values())

        def go_on() -> None:
            nonlocal missing
            if not self._broker.is_serving:
                return
            for planned, index in islice(left, LOGS_AT_ONCE):
                # It may have got other configs meanwhile, or have been deleted.
                topic = self._broker.image.topic(planned.name)
                if topic is not None and topic.topic_id == planned.topic_id:
                    self._host(topic, index, failed)
            missing -= LOGS_AT_ONCE
            if missing > 0:
                self._broker.soon(go_on)
            else:
                self._all_made(topics, failed)
                done(failed)

        go_on()

    def _all_made(self, topics: Mapping[str, TopicInfo], failed: Failures) -> None:
        if CONSUMER_OFFSETS in topics and CONSUMER_OFFSETS not in failed:
            self._broker.offsets_topic_made(topics[CONSUMER_OFFSETS])

    def _host(self, topic: TopicInfo, index: int, failed: Failures) -> None:
        if topic.name in failed or self._broker.node_id not in topic.partitions[index].replicas:
            return
        try:
            self._make(topic, index)
        except KafkaError as error:
            self._broker.log.error("logs of a topic could not be created", topic=topic.name, error=str(error))
            failed[topic.name] = error

    def _make(self, topic: TopicInfo, index: int) -> None:
        self._check_log_is_ours(topic, index)
        config = self._broker.topics.log_config_of(topic)
        state = topic.partitions[index]
        self._broker.replicas.create_partition(topic.name, index, topic.topic_id, config).take_state(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            now_ms=self._broker.clock.now_ms(),
        )

    def _check_log_is_ours(self, topic: TopicInfo, index: int) -> None:
        log = self._broker.log_directory.logs.get((topic.name, index))
        if log is not None and log.topic_id != topic.topic_id:
            raise KafkaStorageError(f"{log.directory} holds the log of another topic of this name")


def _partitions(topics: Mapping[str, TopicInfo]) -> Iterator[tuple[TopicInfo, int]]:
    for topic in topics.values():
        for index in range(len(topic.partitions)):
            yield topic, index
