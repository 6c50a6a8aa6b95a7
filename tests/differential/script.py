"""A scripted dialogue with one broker, whose transcript two brokers can share.

Each request makes a line: what was asked, and what the answer says of it. A script draws nothing and waits for nothing
that it does not look at, so that every broker of one behaviour gives the same lines.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla.protocol.client import WireClient
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.batch import iterate_batches
from tests.broker.requests import list_offsets
from tests.differential.connection import CLIENT_ID, Address, Answer, Connection, Outcome
from tests.differential.shown import ProducerNames, batches, code
from tests.waiting import wait_for

WITHIN_S = 20
LOOK_EVERY_S = 0.005
NS_PER_MS = 1_000_000
WHOLE_LOG = 1 << 24


class Script:
    """`name` makes the names of topics, groups and transactional ids its own."""

    def __init__(self, address: Address, name: str) -> None:
        self._address = address
        self._connection = Connection(address)
        self._name = name
        self.names = ProducerNames()
        self.lines: list[str] = []

    def own(self, name: str) -> str:
        return f"{self._name}-{name}"

    def close(self) -> None:
        self._connection.close()

    def ask(self, what: str, request: Any, version: int, show: Callable[[Any], str]) -> Any:
        """The answer, which is a line now; None where none came."""
        outcome = self._outcome(request, version)
        self.note(f"{what}: {show(outcome.message) if isinstance(outcome, Answer) else type(outcome).__name__.lower()}")
        return outcome.message if isinstance(outcome, Answer) else None

    def note(self, line: str) -> None:
        self.lines.append(line.replace(f"{self._name}-", ""))

    def look(self, request: Any, version: int) -> Any:
        """An answer that makes no line."""
        outcome = self._outcome(request, version)
        assert isinstance(outcome, Answer), f"no answer to {request}"
        return outcome.message

    def until(self, condition: Callable[[], bool]) -> None:
        wait_for(condition, WITHIN_S, lambda: f"{self.lines[-1:]}: what should follow does not", every_s=LOOK_EVERY_S)

    def until_next_millisecond(self) -> None:
        now_ms = time.time_ns() // NS_PER_MS
        self.until(lambda: time.time_ns() // NS_PER_MS > now_ms)

    def _outcome(self, request: Any, version: int) -> Outcome:
        self._connection.send(WireClient(CLIENT_ID).send(request, version))
        outcome = self._connection.receive(type(request), version, WITHIN_S)
        if not isinstance(outcome, Answer):
            self._connection.close()
            self._connection = Connection(self._address)
        return outcome

    # Topics and their logs.

    def create(self, *topics: str, partitions: int = 1) -> None:
        names = [self.own(topic) for topic in topics]
        created = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
        self.look(CreateTopicsRequest(topics=created, timeout_ms=30_000), 7)
        for name in names:
            self.until(lambda name=name: not any(self._leader_codes(name, partitions)))  # type: ignore[misc]

    def _leader_codes(self, topic: str, partitions: int) -> list[int]:
        """A broker of Kafka leads a partition a little later than its controller says so."""
        (found,) = self.look(list_offsets(topic, *range(partitions)), 5).topics
        return [each.error_code for each in found.partitions]

    def log(self, topic: str, index: int = 0) -> None:
        """A line for each batch in it."""
        for line in batches(self.names, self.records(self.own(topic), index)):
            self.note(f"log {self.own(topic)}-{index}: {line}")

    def records(self, topic: str, index: int) -> bytes:
        records, offset = b"", 0
        while True:
            partition = self._fetched(topic, index, offset)
            records += bytes(partition.records or b"")
            end = _end_offset(records)
            if end == offset or end >= partition.high_watermark:
                return records
            offset = end

    def _fetched(self, topic: str, index: int, offset: int) -> Any:
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=WHOLE_LOG)
        asked = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[partition])])
        (found,) = self.look(asked, 12).responses[0].partitions
        assert not found.error_code, f"{topic}-{index}: {code(found.error_code)}"
        return found


def _end_offset(records: bytes) -> int:
    ends = [header.last_offset + 1 for _, header in iterate_batches(memoryview(records))]
    return ends[-1] if ends else 0


def joined(parts: Sequence[str]) -> str:
    return " ".join(parts) or "nothing"
