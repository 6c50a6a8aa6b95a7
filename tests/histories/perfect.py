"""A cluster that never errs, and clients that live with slow, lost and late answers: makes good histories to judge."""

import random
from collections import deque
from dataclasses import dataclass, field

from tests.histories.events import (
    NONE_COMMITTED,
    Acknowledged,
    CommitAcknowledged,
    CommitRead,
    CommitSent,
    EndSeen,
    Event,
    FinalLog,
    Read,
    Sent,
)
from tests.histories.violations import Partition

TOPIC, GROUP = "t", "g"
PARTITIONS: tuple[Partition, ...] = ((TOPIC, 0), (TOPIC, 1))


@dataclass
class Consumer:
    name: str
    session: int = 0
    positions: dict[Partition, int] = field(default_factory=dict)


class PerfectCluster:
    """One step is one thing that happens somewhere; `random` chooses which."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_us = 0
        self.events: list[Event] = []
        self.logs: dict[Partition, list[str]] = {partition: [] for partition in PARTITIONS}
        self.committed: dict[Partition, CommitSent | None] = dict.fromkeys(PARTITIONS)
        self.consumers = [Consumer("c0"), Consumer("c1")]
        self._made = 0
        # Idempotent producers: what was sent to a partition is appended in that order.
        self._unwritten: dict[tuple[str, Partition], deque[Sent]] = {}
        self._unanswered: list[Event] = []
        self._unapplied: list[CommitSent] = []

    def run(self, steps: int) -> "PerfectCluster":
        things = (
            self.send,
            self.write,
            self.write,
            self.answer,
            self.answer,
            self.forget_an_answer,
            self.read,
            self.read,
            self.seek,
            self.ask_for_the_end,
            self.send_commit,
            self.apply_commit,
            self.read_committed,
        )
        for _ in range(steps):
            self.now_us += self.random.randrange(3)
            self.random.choice(things)()
        return self

    @property
    def final_logs(self) -> dict[Partition, FinalLog]:
        return {partition: FinalLog(0, tuple(enumerate(values))) for partition, values in self.logs.items()}

    def send(self) -> Sent:
        self._made += 1
        topic, index = self._partition()
        producer = self.random.choice("pq")
        sent = Sent(self.now_us, producer, topic, index, self._made, f"{producer}/{self._made}")
        self.events.append(sent)
        self._unwritten.setdefault((producer, (topic, index)), deque()).append(sent)
        return sent

    def write(self) -> None:
        waiting = [queue for queue in self._unwritten.values() if queue]
        if not waiting:
            return
        sent = self.random.choice(waiting).popleft()
        log = self.logs[sent.topic, sent.partition]
        log.append(sent.value)
        self._unanswered.append(Acknowledged(0, sent.value, len(log) - 1))

    def answer(self) -> None:
        if not self._unanswered:
            return
        match self._unanswered.pop(self.random.randrange(len(self._unanswered))):
            case Acknowledged() as answer:
                self.events.append(Acknowledged(self.now_us, answer.value, answer.offset))
            case CommitAcknowledged() as answer:
                self.events.append(CommitAcknowledged(self.now_us, answer.commit_id))
            case other:
                raise AssertionError(other)

    def forget_an_answer(self) -> None:
        if self._unanswered and self.random.random() < 0.3:
            self._unanswered.pop()

    def read(self) -> None:
        consumer, partition = self.random.choice(self.consumers), self._partition()
        position = consumer.positions.get(partition, 0)
        if position < len(self.logs[partition]):
            value = self.logs[partition][position]
            self.events.append(Read(self.now_us, consumer.name, consumer.session, *partition, position, value))
            consumer.positions[partition] = position + 1

    def seek(self) -> None:
        consumer = self.random.choice(self.consumers)
        consumer.session += 1
        consumer.positions = {one: self.random.randint(0, len(self.logs[one])) for one in PARTITIONS}

    def ask_for_the_end(self) -> None:
        partition, end = self._partition(), 0
        asked_us = self.now_us
        end = len(self.logs[partition])
        self.now_us += self.random.randrange(3)
        self.events.append(EndSeen(asked_us, self.now_us, "c0", *partition, end))

    def send_commit(self) -> None:
        self._made += 1
        sent = CommitSent(self.now_us, GROUP, *self._partition(), self.random.randrange(9), f"commit/{self._made}")
        self.events.append(sent)
        self._unapplied.append(sent)

    def apply_commit(self) -> None:
        if self._unapplied:
            sent = self._unapplied.pop(self.random.randrange(len(self._unapplied)))
            self.committed[sent.topic, sent.partition] = sent
            self._unanswered.append(CommitAcknowledged(0, sent.commit_id))

    def read_committed(self) -> None:
        partition = self._partition()
        commit = self.committed[partition]
        asked_us = self.now_us
        self.now_us += self.random.randrange(3)
        found = (NONE_COMMITTED, "") if commit is None else (commit.offset, commit.commit_id)
        self.events.append(CommitRead(asked_us, self.now_us, GROUP, *partition, *found))

    def _partition(self) -> Partition:
        return self.random.choice(PARTITIONS)
