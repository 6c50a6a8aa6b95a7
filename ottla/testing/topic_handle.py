"""One topic, as the handle of a test has it."""

from collections.abc import Mapping

from ottla.testing.testbed import Testbed
from ottla.testing.usage import checks_usage
from ottla.testing.views import LogChange, PartitionView, TopicView


@checks_usage
class KafkaTopic:
    """One topic. What it shows is as of the moment of the call."""

    def __init__(self, bed: Testbed, name: str) -> None:
        self._bed = bed
        self.name = name

    def describe(self) -> TopicView:
        """Raises UnknownTopicOrPartition."""
        view = self._bed.call(self._bed.reader.topic, self.name)
        if view is None:
            raise self._bed.call(self._bed.reader.no_topic, self.name)
        return view

    @property
    def exists(self) -> bool:
        return self._bed.call(self._bed.reader.topic, self.name) is not None

    @property
    def partitions(self) -> tuple[PartitionView, ...]:
        """Raises UnknownTopicOrPartition."""
        return self.describe().partitions

    def delete(self) -> None:
        """Raises UnknownTopicOrPartition."""
        self._bed.run(self._bed.writer.delete_topic(self.name))

    def add_partitions(self, count: int) -> None:
        """`count`: how many it has then. Raises the KafkaError of CreatePartitions."""
        self._bed.run(self._bed.writer.add_partitions(self.name, count))

    def delete_records(self, partition: int, *, before: int) -> None:
        """The partition begins at this offset then. Raises the KafkaError of DeleteRecords."""
        self._bed.run(self._bed.writer.delete_records(self.name, partition, before))

    def alter(self, configs: Mapping[str, object]) -> None:
        """Sets these configs; None goes back to the default of the broker. Raises the KafkaError of
        IncrementalAlterConfigs."""
        self._bed.run(self._bed.writer.alter_topic(self.name, configs))

    # Jobs of the logs that a test does not wait for: each is done when the call returns, and says what it has done.

    def roll(self) -> list[LogChange]:
        """A new segment begins in each partition, unless the active one is empty."""
        return self._bed.run(self._bed.log_jobs.roll(self.name))

    def apply_retention(self) -> list[LogChange]:
        """Removes what is too old or too much by `retention.ms` and `retention.bytes`, and broker time."""
        return self._bed.run(self._bed.log_jobs.apply_retention(self.name))

    def compact(self) -> list[LogChange]:
        """Keeps the last value of each key, but for what `min.compaction.lag.ms` and open transactions protect. Raises
        InvalidConfig where `cleanup.policy` has no `compact`."""
        return self._bed.run(self._bed.log_jobs.compact(self.name))
