"""Members made of real clients on threads of their own, and the broker's facts about their group."""

import threading
from collections.abc import Callable

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition

from ottla.coordinator.facts import Fact, GenerationCompleted, GenerationStarted, MemberRemoved, StateChanged

WAIT_S = 30


class Timeline:
    """What the broker told about one group. `print(timeline)` shows it: `pytest -s` with OTTLA_TIMELINE set does."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.facts: list[Fact] = []
        self._told = threading.Condition()

    def __call__(self, fact: Fact) -> None:
        if getattr(fact, "group_id", None) == self.group_id:
            with self._told:
                self.facts.append(fact)
                self._told.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._told:
            assert self._told.wait_for(condition, WAIT_S), f"it did not come to that:\n{self}"

    def of(self, kind: type) -> list:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def states(self) -> list[str]:
        changes = self.of(StateChanged)
        return [changes[0].from_state.value, *(change.to_state.value for change in changes)] if changes else []

    def stable_generations(self) -> list[int]:
        return [fact.generation for fact in self.of(GenerationCompleted)]

    def sizes(self) -> list[int]:
        """Members of each generation."""
        return [len(fact.member_ids) for fact in self.of(GenerationStarted)]

    def removals(self) -> list[str]:
        return [fact.cause.value for fact in self.of(MemberRemoved)]

    def __str__(self) -> str:
        lines = [
            f"generation {f.generation}: {f.from_state} → {f.to_state}  ({f.reason})" for f in self.of(StateChanged)
        ]
        return "\n".join([f"group {self.group_id}", *lines])


class Member(ConsumerRebalanceListener):
    """A kafka-python consumer that polls on a thread of its own until it is closed."""

    def __init__(self, bootstrap: str, topic: str, group: str, **settings: object) -> None:
        self.assigned: list[set[int]] = []
        self.revoked: list[set[int]] = []
        defaults = {"session_timeout_ms": 10_000, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        self.consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **{**defaults, **settings})
        # A leader that joins before it knows the topic joins again when it does, which no scenario here is about.
        assert self.consumer.partitions_for_topic(topic), f"there is no topic {topic}"
        self.consumer.subscribe([topic], listener=self)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=str(settings.get("client_id", "member")))
        self._thread.start()

    @property
    def owned(self) -> set[int]:
        return self.assigned[-1] if self.assigned else set()

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.revoked.append({p.partition for p in revoked})

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.assigned.append({p.partition for p in assigned})

    def close(self) -> None:
        """Leaves the group, as a well-behaved consumer does."""
        self._closing.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the member does not stop polling"

    def _poll(self) -> None:
        while not self._closing.is_set():
            self.consumer.poll(timeout_ms=50)
        self.consumer.close()
