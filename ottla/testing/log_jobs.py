"""The jobs of logs, done now: new segments, retention, compaction. Coroutines of the brokers' loop.

They are those of the brokers themselves, by their settings and the brokers' time. What they would wait for, the next
round and the share of a log that has to be dirty, is not waited for.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from ottla.broker.assembly import Parts
from ottla.broker.runtime import complete
from ottla.protocol.errors import InvalidConfig
from ottla.replication.partition import Partition
from ottla.testing.hosting import HostedBrokers
from ottla.testing.reading import BrokerReader
from ottla.testing.views import LogChange, SegmentView

WITHIN_S: Final = 30.0

Known = Mapping[int, tuple[int, int]]
"""By partition, log start offset and bytes."""


class LogJobs:
    def __init__(self, hosted: HostedBrokers, reader: BrokerReader) -> None:
        self._hosted = hosted
        self._reader = reader

    def segments(self, topic: str, index: int) -> tuple[SegmentView, ...]:
        """Raises UnknownTopicOrPartition."""
        log = self._leader(topic, index).log
        return tuple(SegmentView(each.base_offset, each.size, each is log.segments.active) for each in log.segments)

    async def roll(self, topic: str) -> list[LogChange]:
        """Raises UnknownTopicOrPartition, KafkaStorageError."""
        before = self._known(topic)
        for parts in self._hosted.running():
            for replica in parts.replicas.of_topic(topic):
                replica.log.roll()
            parts.runtime.end_event()
        return self._changes(topic, before)

    async def apply_retention(self, topic: str) -> list[LogChange]:
        """Raises UnknownTopicOrPartition, KafkaStorageError."""
        before = self._known(topic)
        for parts in self._hosted.running():
            parts.log_manager.apply_retention(topic)
            parts.runtime.end_event()
        return self._changes(topic, before)

    async def compact(self, topic: str) -> list[LogChange]:
        """The active segments end first. Raises UnknownTopicOrPartition, KafkaStorageError, and InvalidConfig where the
        topic is not compacted."""
        before = self._known(topic)
        if not all(self._leader(topic, index).log.config.is_compacted for index in before):
            raise InvalidConfig(f"topic {topic!r} has no cleanup.policy=compact")
        for parts in self._hosted.running():
            if not parts.runtime.config.log_cleaner_enable:
                raise InvalidConfig("log.cleaner.enable=false: nothing is compacted")
            replicas = list(parts.replicas.of_topic(topic))
            configs = {replica: replica.log.config for replica in replicas}
            for replica in replicas:
                replica.log.roll()
                replica.log.configure(replica.log.config._replace(min_cleanable_dirty_ratio=0.0))
            try:
                await self._cleaned(parts)
            finally:
                for replica, config in configs.items():
                    # Unless somebody has altered it since.
                    if replica.log.config == config._replace(min_cleanable_dirty_ratio=0.0):
                        replica.log.configure(config)
        return self._changes(topic, before)

    async def _cleaned(self, parts: Parts) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        parts.log_manager.clean_now(partial(complete, done, None))
        async with asyncio.timeout(WITHIN_S):
            await done

    def _known(self, topic: str) -> Known:
        """Raises UnknownTopicOrPartition."""
        view = self._reader.topic(topic)
        if view is None:
            raise self._reader.no_topic(topic)
        logs = {each.partition: self._leader(topic, each.partition).log for each in view.partitions}
        return {index: (log.log_start_offset, log.size_bytes) for index, log in logs.items()}

    def _changes(self, topic: str, before: Known) -> list[LogChange]:
        changes: list[LogChange] = []
        for index, (start, size) in before.items():
            log = self._leader(topic, index).log
            changes.append(
                LogChange(
                    partition=index,
                    log_start_offset=log.log_start_offset,
                    records_removed=log.log_start_offset - start,
                    segments=len(log.segments),
                    size_bytes=log.size_bytes,
                    bytes_removed=size - log.size_bytes,
                )
            )
        return changes

    def _leader(self, topic: str, index: int) -> Partition:
        """Raises UnknownTopicOrPartition."""
        return self._reader.leader_now(topic, index)
