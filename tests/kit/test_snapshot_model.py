"""Whatever happens before and after a snapshot: what can be read after the restore is what could be read at it."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.storage.compaction import begin_swap, compact, plan_compaction
from ottla.storage.segment_swap import SwapStep
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.testbed import Testbed

TOPICS = ("orders", "shipped")
KEYS = (b"a", b"b", b"c")


class World:
    """A broker and the clients of one example."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.kafka = Kafka(bed)
        self._till: Producer | None = None
        self._is_open = False

    def do(self, step: str, random: Random) -> None:
        topic = random.choice(TOPICS)
        if not self.kafka.topic(topic).exists:
            self.kafka.create_topic(topic, partitions=2, configs={"retention.ms": random.choice((-1, 9_000_000))})
        getattr(self, f"_{step}")(topic, random)

    def drop_clients(self) -> None:
        """Their connections are closed: they go on with other ones."""
        if self._till is not None:
            self._till.purge()
        self._till, self._is_open = None, False

    def state(self) -> dict[str, Any]:
        """All that can be read. A group that has no offsets any more, and no members, is stored nowhere."""
        self.kafka.wait(lambda _: self._is_replicated(), describe="followers have it all", within=20)
        offsets = {group: dict(self.kafka.group(group).offsets) for group in self.kafka.groups}
        topics = {name: self.kafka.topic(name).describe() for name in self.kafka.topics}
        return {
            "configs": {name: dict(topic.configs) for name, topic in topics.items()},
            "ends": {
                name: [
                    (each.log_start_offset, each.last_stable_offset, each.high_watermark, each.log_end_offset)
                    for each in topic.partitions
                ]
                for name, topic in topics.items()
            },
            "logs": {name: self.kafka.records(name, isolation="log") for name in topics},
            "committed": {name: self.kafka.records(name) for name in topics},
            "offsets": {group: committed for group, committed in offsets.items() if committed},
        }

    def _is_replicated(self) -> bool:
        topics = [self.kafka.topic(name).describe() for name in self.kafka.topics]
        return all(each.high_watermark == each.log_end_offset for topic in topics for each in topic.partitions)

    # Steps.

    def _produce(self, topic: str, random: Random) -> None:
        records = [(random.choice(KEYS), random.randbytes(random.choice((3, 500)))) for _ in range(3)]
        self.kafka.produce(topic, records)

    def _roll(self, topic: str, random: Random) -> None:
        self._of_log(topic, random, lambda log: log.roll())

    def _begin_transaction(self, topic: str, random: Random) -> None:
        if self._is_open:
            return
        if self._till is None:
            config = {"transactional.id": "till", "log_level": 0}
            self._till = Producer(self.kafka.client_config("producer") | config)
            self._till.init_transactions(20)
        self._till.begin_transaction()
        self._till.produce(topic, random.randbytes(5), partition=random.randrange(2))
        assert self._till.flush(20) == 0
        self._is_open = True

    def _end_transaction(self, topic: str, random: Random) -> None:
        if self._till is not None and self._is_open:
            random.choice((self._till.commit_transaction, self._till.abort_transaction))(20)
            self._is_open = False

    def _commit_offsets(self, topic: str, random: Random) -> None:
        config = {"group.id": random.choice(("shop", "bank")), "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer(self.kafka.client_config("consumer") | config)
        place = TopicPartition(topic, random.randrange(2), random.randrange(9))
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()

    def _delete_topic(self, topic: str, random: Random) -> None:
        if not self._is_open:
            self.kafka.topic(topic).delete()

    def _delete_records(self, topic: str, random: Random) -> None:
        partition = random.choice(self.kafka.topic(topic).partitions)
        before = random.randint(partition.log_start_offset, partition.high_watermark)
        self.kafka.topic(topic).delete_records(partition.partition, before=before)

    def _compact(self, topic: str, random: Random) -> None:
        def work(log: Any) -> None:
            kept = log.config
            log.configure(kept._replace(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0))
            plan = plan_compaction(log, now_wall_ms=1, upper_bound=self._stable(topic, log.partition))
            if plan is not None:
                swap = begin_swap(log, compact(plan))
                assert swap is not None
                swap.prepare()
                while (step := log.swaps.apply(swap, 1)) is not SwapStep.END:
                    if step is SwapStep.SYNC:
                        swap.sync()
            log.configure(kept)

        self._of_log(topic, random, work)

    def _stable(self, topic: str, index: int) -> int:
        view = self.bed.reader.topic(topic)
        assert view is not None
        return view.partitions[index].last_stable_offset

    def _of_log(self, topic: str, random: Random, action: Callable[[Any], None]) -> None:
        """That of the leader."""
        leader = self.bed.call(self.bed.reader.leader, topic, random.randrange(2))
        assert leader is not None
        self.bed.call(lambda: action(leader.log))


STEPS = (
    "produce",
    "produce",
    "roll",
    "begin_transaction",
    "end_transaction",
    "commit_offsets",
    "delete_topic",
    "delete_records",
    "compact",
)


LIFE = {
    "before": st.lists(st.sampled_from(STEPS), max_size=12),
    "after": st.lists(st.lists(st.sampled_from(STEPS), max_size=8), min_size=1, max_size=3),
    "random": st.randoms(use_true_random=False),
}


def check_restores(bed: Testbed, before: list[str], after: list[list[str]], random: Random) -> None:
    world = World(bed)
    world.kafka.reset()
    for step in before:
        world.do(step, random)
    taken = world.kafka.snapshot("model")
    state = world.state()
    assert taken.partitions >= 2 * len(state["logs"])
    for steps in after:
        for step in steps:
            world.do(step, random)

        world.kafka.restore("model")

        world.drop_clients()
        assert world.state() == state
    assert not any(parts.runtime.unhandled_errors for parts in bed.hosted.parts().values())


# Clients that go on after a restore would make topics that are gone again.
NO_NEW_TOPICS = {"auto.create.topics.enable": False}


@pytest.fixture(scope="module")
def one() -> Iterator[Testbed]:
    bed = Testbed(settings=NO_NEW_TOPICS, deadline=20)
    bed.start()
    yield bed
    bed.stop()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**LIFE)
def test_restore_gives_what_could_be_read_at_the_snapshot(
    before: list[str], after: list[list[str]], random: Random, one: Testbed
) -> None:
    check_restores(one, before, after, random)
    assert one.hosted.log_lines.since(0) == []


@pytest.fixture(scope="module")
def three() -> Iterator[Testbed]:
    bed = Testbed(brokers=3, settings=cluster_settings(3) | NO_NEW_TOPICS, deadline=20)
    bed.start()
    yield bed
    bed.stop()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**LIFE)
def test_restore_of_three_brokers_gives_the_same_again(
    before: list[str], after: list[list[str]], random: Random, three: Testbed
) -> None:
    check_restores(three, before, after, random)
