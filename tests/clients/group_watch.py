"""Members made of real clients on threads of their own, and the broker's facts about their group."""

import threading
from collections.abc import Callable

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.util import Timer

from ottla.coordinator.facts import (
    Fact,
    GenerationCompleted,
    GenerationStarted,
    MemberRemoved,
    RebalanceStarted,
    StateChanged,
)

WAIT_S = 30


class Timeline:
    """The facts about one group. `print(timeline)` shows them: `pytest -s --show-timeline` does."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.facts: list[Fact] = []
        self._arrived = threading.Condition()

    def __call__(self, fact: Fact) -> None:
        if getattr(fact, "group_id", None) == self.group_id:
            with self._arrived:
                self.facts.append(fact)
                self._arrived.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(condition, WAIT_S), f"it did not come to that:\n{self}"

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

    def causes(self) -> list[str]:
        """Why each rebalance started."""
        return [fact.cause.value for fact in self.of(RebalanceStarted)]

    def removals(self) -> list[str]:
        return [fact.cause.value for fact in self.of(MemberRemoved)]

    def __str__(self) -> str:
        lines = [
            f"generation {f.generation}: {f.from_state} → {f.to_state}  ({f.reason})" for f in self.of(StateChanged)
        ]
        return "\n".join([f"group {self.group_id}", *lines])


class PatientConsumer(KafkaConsumer):
    """A kafka-python consumer whose polls outlast any join.

    Version 3.0.12 forgets a join that ends between two polls (`BaseCoordinator.join_group_async` replaces a task that
    is done) and joins again. When a leader does that, the group rebalances, for no reason that a scenario is about.
    """

    POLL_MS = WAIT_S * 1000 // 2

    def poll_until(self, stop: threading.Event) -> None:
        """Ends soon after `stop` is set, but never in the middle of a join."""
        while not stop.is_set():
            self._poll_once(Timer(self.POLL_MS), max_records=500)


class Member(ConsumerRebalanceListener):
    """A kafka-python consumer that polls on a thread of its own until it is closed."""

    def __init__(self, bootstrap: str, topic: str, group: str, *, start: bool = True, **settings: object) -> None:
        """Knows its topic when this returns; joins the group at once, or when it is asked to `start`."""
        self.assigned: list[set[int]] = []
        self.revoked: list[set[int]] = []
        self.owned: set[int] = set()
        self.may_let_go = threading.Event()
        """Cleared, it makes the member keep what it owns, and with that the group wait, until it is set."""
        self.may_let_go.set()
        defaults = {
            "session_timeout_ms": 10_000,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 50,
        }
        self.consumer = PatientConsumer(bootstrap_servers=bootstrap, group_id=group, **{**defaults, **settings})
        self.consumer.subscribe([topic], listener=self)
        # Asks the broker. A leader that assigns before it knows its topic's partitions joins again when it does.
        assert topic in self.consumer.topics(), f"there is no topic {topic}"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=str(settings.get("client_id", "member")))
        if start:
            self.start()

    def start(self) -> None:
        self._thread.start()

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        assert self.may_let_go.wait(WAIT_S), "the test did not let the member give up its partitions"
        self.revoked.append({p.partition for p in revoked})
        self.owned = set()

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.owned = {p.partition for p in assigned}
        self.assigned.append(self.owned)

    def close(self) -> None:
        """Leaves the group, as a well-behaved consumer does."""
        self._closing.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the member does not stop polling"

    def _poll(self) -> None:
        self.consumer.poll_until(self._closing)
        self.consumer.close()
