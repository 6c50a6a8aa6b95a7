"""Ten cases that each test of the suite runs in: which library, how many partitions and records, which codec."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.kit.suite.aio import Aiokafka
from tests.kit.suite.confluent import Confluent
from tests.kit.suite.kafka_python import KafkaPython
from tests.kit.suite.library import Library, Sent


@dataclass(frozen=True)
class Case:
    library: str
    partitions: int
    count: int
    codec: str = "none"

    def __str__(self) -> str:
        return f"{self.library}-{self.partitions}-{self.count}-{self.codec}"

    def records(self, prefix: str = "record") -> list[Sent]:
        """Over all partitions in turn."""
        return [
            Sent(b"%s %d" % (prefix.encode(), number), partition=number % self.partitions)
            for number in range(self.count)
        ]

    def written(self, prefix: str = "record") -> list[tuple[int, int, bytes | None]]:
        """Where they are, if nothing else is in the topic: partition, offset and value of each."""
        placed = enumerate(self.records(prefix))
        return sorted((number % self.partitions, number // self.partitions, record.value) for number, record in placed)


CASES: Sequence[Case] = (
    Case("confluent", 1, 5),
    Case("confluent", 2, 8, "gzip"),
    Case("confluent", 3, 12, "lz4"),
    Case("confluent", 1, 40, "zstd"),
    Case("kafka-python", 1, 5),
    Case("kafka-python", 2, 8, "gzip"),
    Case("kafka-python", 3, 12, "lz4"),
    Case("aiokafka", 1, 5),
    Case("aiokafka", 2, 8, "gzip"),
    Case("aiokafka", 3, 12, "snappy"),
)
LIBRARIES: dict[str, Callable[[str], Library]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
