"""Markers to the leaders of partitions in virtual time: leaders and coordinators that move or are gone (I-22)."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.coordinators.marker_turns import ORDERS_PER_STEP, PARTITIONS_PER_STEP
from ottla.cluster.image import NO_LEADER, TRANSACTION_STATE
from ottla.coordinator.transactions.events import WriteMarkers
from ottla.protocol.errors import ErrorCode
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.transactions import written
from tests.broker.virtual_cluster import Cluster, Node
from tests.cluster import images
from tests.simulation.judge import Judge
from tests.simulation.wire import Wire, connect

NONE = ErrorCode.NONE
THREE = {
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 3,
    "replica_fetch_wait_max_ms": 100,
}


async def began(cluster: Cluster, nodes: list[Node]) -> TransactionalProducer:
    """A transaction with a record in the partitions of t, which the brokers lead in turn."""

    async def ask(node: Node, request: Any, version: int) -> Any:
        wire = await connect(cluster.network, Judge(cluster.trace), (node.host, 9092), "client", Wire)
        try:
            return await wire.call(request, version, within_ms=10_000)
        finally:
            wire.close()

    topic = await cluster.create(nodes[0], "t", partitions=3)
    await cluster.until(lambda: all(replica(node, index) is not None for node in nodes for index in range(3)))
    producer = TransactionalProducer({node.node_id: node for node in nodes}, ask=ask)
    assert await producer.initialize() is NONE
    assert await producer.add("t", [0, 1, 2]) == [NONE] * 3
    for index, state in enumerate(topic.partitions):
        leader = next(node for node in nodes if node.node_id == state.leader)
        write = lambda leader=leader, index=index: written(  # noqa: E731 - it is run in the broker's process.
            leader.broker, "t", "a", producer=producer.producer_id, index=index
        )
        leader.context.run(write)
        await cluster.until(lambda leader=leader, index=index: replica(leader, index).high_watermark == 1)
    return producer


def replica(node: Node, index: int) -> Any:
    return node.broker.replicas.find("t", index)


def leader_of(nodes: list[Node], topic: str, index: int) -> Node:
    image = nodes[0].broker.image
    state = image.partition(topic, index)
    assert state is not None
    return next(node for node in nodes if node.node_id == state.leader)


def all_stable(nodes: list[Node]) -> bool:
    """Every record of t can be read by all, in the log of each leader, behind a marker."""
    for index in range(3):
        try:
            partition = replica(leader_of(nodes, "t", index), index)
        except StopIteration:
            return False
        if partition is None or not 2 <= partition.last_stable_offset == partition.log.log_end_offset:
            return False
    return True


def played(story: Callable[[Cluster, list[Node], TransactionalProducer], Awaitable[list[Node]]]) -> None:
    cluster = Cluster()

    async def run() -> None:
        nodes = await cluster.started(0, 1, 2, **THREE)
        await cluster.stop_all(*await story(cluster, nodes, await began(cluster, nodes)))

    try:
        cluster.run(run())
    finally:
        cluster.loop.close()


def test_markers_reach_the_leaders_on_all_brokers() -> None:
    async def story(cluster: Cluster, nodes: list[Node], producer: TransactionalProducer) -> list[Node]:
        assert await producer.end(commit=True) is NONE
        await cluster.until(lambda: all_stable(nodes))
        assert await producer.add("t", [0]) == [NONE]
        return nodes

    played(story)


def test_markers_wait_for_a_leader_that_is_gone() -> None:
    async def story(cluster: Cluster, nodes: list[Node], producer: TransactionalProducer) -> list[Node]:
        coordinator = await producer.coordinator()
        lost = next(node for node in nodes if node.node_id != coordinator)
        cluster.kill(lost)
        left = [node for node in nodes if node is not lost]
        producer.brokers = {node.node_id: node for node in left}

        assert await producer.end(commit=True) is NONE
        await cluster.until(lambda: all_stable(left))

        return left

    played(story)


class Sending:
    """A sender on broker 3, whose tasks do not run."""

    def __init__(self, *states: Any, write_here: Any = None) -> None:
        self.now_ms = 0
        self.soon: list[Callable[[], None]] = []
        self.retries: list[Callable[[], None]] = []
        self.errors: list[BaseException] = []
        self.logged: list[tuple[str, str]] = []
        self.coroutines: list[Any] = []
        self.written: list[tuple[tuple[str, int], ...]] = []
        self.reported: list[Any] = []
        self.partitions = tuple(("t", index) for index in range(len(states)))
        runtime: Any = SimpleNamespace(
            node_id=3,
            clock=SimpleNamespace(now_ms=lambda: self.now_ms),
            soon=self.soon.append,
            schedule=self._schedule,
            spawn=lambda coroutine, _: self.coroutines.append(coroutine),
            log=SimpleNamespace(
                info=lambda _, **fields: self.logged.append(("info", fields["error"])),
                error=lambda _, exc_info=None, **fields: (
                    self.errors.append(exc_info) if exc_info else self.logged.append(("error", fields["error"]))
                ),
            ),
        )
        metadata: Any = SimpleNamespace(image=images.image(*states))
        self.hosted: Any = SimpleNamespace(
            loaded_offset=0,
            is_unloaded=False,
            handle=self.reported.append,
            topic=TRANSACTION_STATE,
            index=0,
            leader_epoch=5,
        )
        replicas: Any = SimpleNamespace(find=lambda *_: SimpleNamespace(high_watermark=0, leader_epoch_start=0))
        nowhere: Any = None
        self.sender = MarkerSender(
            runtime, replicas, metadata, nowhere, write_here or self.write_here, inter_broker_listener="", login=None
        )

    def write_here(self, command: WriteMarkers, partitions: Any, coordinator_epoch: int, done: Any) -> None:
        assert (command.producer_id, coordinator_epoch) == (7, 5)
        self.written.append(partitions)
        self.done = done

    def send(self, orders: int = 1) -> None:
        for number in range(orders):
            self.sender.send(self.hosted, WriteMarkers(f"tx-{number}", 1, 7, 0, True, 2, self.partitions))
        self.run_soon()

    def _schedule(self, wait_ms: int, action: Callable[[], None]) -> Any:
        self.retries.append(partial(self._fire, self.now_ms + wait_ms, action))
        return SimpleNamespace(cancel=lambda: None)

    def _fire(self, now_ms: int, action: Callable[[], None]) -> None:
        self.now_ms = now_ms
        action()

    def run_soon(self) -> None:
        actions, self.soon[:] = list(self.soon), []
        for action in actions:
            action()

    def close(self) -> None:
        for each in self.coroutines:
            each.close()


def test_waiting_markers_are_counted_by_where_they_go() -> None:
    sending = Sending(
        images.state(leader=1), images.state(leader=NO_LEADER, isr=""), images.state(leader=2), images.state(leader=3)
    )
    sending.send()

    assert (sending.sender.queued_by_broker(), sending.sender.waiting_again) == ({1: 1, 2: 1, 3: 1}, 1)
    sending.hosted.is_unloaded = True
    assert (sending.sender.queued_by_broker(), sending.sender.waiting_again) == ({1: 0, 2: 0, 3: 0}, 0)
    sending.close()


def test_partitions_led_here_get_markers_without_a_request() -> None:
    sending = Sending(*[images.state(leader=3)] * (PARTITIONS_PER_STEP + 2))
    first, second = sending.partitions[:PARTITIONS_PER_STEP], sending.partitions[PARTITIONS_PER_STEP:]
    sending.send()
    assert sending.written == [first]
    sending.done([NONE] * len(first))
    sending.run_soon()
    assert sending.written == [first, second]
    sending.done([NONE, ErrorCode.REQUEST_TIMED_OUT])

    assert [event.partitions for event in sending.reported] == [frozenset(first), frozenset(second[:1])]
    assert (sending.sender.queued_by_broker(), sending.sender.waiting_again) == ({}, 1)
    sending.retries[0]()
    assert sending.written[2:] == [second[1:]]
    assert (sending.coroutines, sending.errors) == ([], [])


def test_many_orders_are_routed_a_few_in_each_step() -> None:
    """Of 1,000 ids that a new coordinator finds decided, and that are all sent again in the same millisecond."""
    sending = Sending(images.state(leader=NO_LEADER, isr=""))
    routed: list[int] = []
    route = sending.sender._route
    sending.sender._route = lambda markers: (routed.append(len(sending.soon)), route(markers))  # type: ignore[assignment]
    sending.send(1_000)
    steps = 1
    while sending.soon:
        assert (len(routed), len(sending.soon)) == (steps * ORDERS_PER_STEP, 1)
        sending.run_soon()
        steps += 1
    assert (len(routed), steps, len(sending.retries)) == (1_000, 32, 1)

    sending.retries[0]()
    assert len(routed) == 1_000 + ORDERS_PER_STEP
    while sending.soon:
        sending.run_soon()
    assert (len(routed), sending.sender.waiting_again) == (2_000, 1_000)


def test_a_wide_order_lets_others_have_their_turn() -> None:
    sending = Sending(*[images.state(leader=3)] * (5 * PARTITIONS_PER_STEP))
    sending.send()
    sending.sender.send(sending.hosted, WriteMarkers("narrow", 1, 7, 0, True, 2, (("t", 0),)))
    while sending.soon:
        sending.run_soon()

    # The second hundred stood before the narrow order already.
    assert [len(partitions) for partitions in sending.written] == [100, 100, 1, 99, 100, 100, 1]
    assert sending.written[2] == (("t", 0),)


def test_markers_of_one_order_share_a_request() -> None:
    sending = Sending(*[images.state(leader=1)] * (3 * PARTITIONS_PER_STEP))
    sending.send()
    sending.sender.send(sending.hosted, WriteMarkers("other", 1, 8, 0, True, 2, sending.partitions))
    while sending.soon:
        sending.run_soon()

    requests = []
    while batch := sending.sender._take(1):
        requests.append([(each.order.command.transactional_id, len(each.partitions)) for each in batch])
    assert requests == [[("tx-0", 300), ("other", 300)]]
    sending.close()


@pytest.mark.parametrize(
    ("code", "level"),
    [
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "info"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "info"),
        (ErrorCode.CORRUPT_MESSAGE, "error"),
    ],
)
def test_replaced_coordinator_gives_up_without_an_error(code: ErrorCode, level: str) -> None:
    """It may be the last to know, as a broker that the store does not reach: its successor writes the marker."""
    sending = Sending(images.state(leader=3))
    sending.send()
    sending.done([code])

    assert sending.logged == [(level, code.name)]
    assert len(sending.retries) == (level == "error")
    assert sending.reported == []


def test_markers_led_here_are_written_again_after_a_bug() -> None:
    bug = RuntimeError("a bug")
    outcomes: list[Callable[[list[ErrorCode]], None]] = []

    def write_here(command: Any, partitions: Any, coordinator_epoch: int, done: Any) -> None:
        outcomes.append(done)
        if len(outcomes) == 1:
            raise bug

    sending = Sending(images.state(leader=3), write_here=write_here)
    sending.send()
    assert (sending.errors, sending.sender.waiting_again) == ([bug], 1)
    # What the first attempt has begun is of no interest any more.
    outcomes[0]([NONE])
    assert sending.reported == []

    sending.retries[0]()
    outcomes[1]([NONE])
    assert [event.partitions for event in sending.reported] == [frozenset(sending.partitions)]


def test_another_coordinator_ends_what_was_decided() -> None:
    async def story(cluster: Cluster, nodes: list[Node], producer: TransactionalProducer) -> list[Node]:
        node_id = await producer.coordinator()
        coordinator = next(node for node in nodes if node.node_id == node_id)
        left = [node for node in nodes if node is not coordinator]
        # Its markers reach no other broker.
        coordinator.broker.parts.transactions.markers.stop()
        assert await producer.end(commit=True) is NONE
        assert not all_stable(nodes)

        cluster.kill(coordinator)
        producer.brokers = {node.node_id: node for node in left}
        await cluster.until(lambda: all_stable(left))

        assert (await producer.described()).producer_id == producer.producer_id
        return left

    played(story)


def test_markers_wait_for_what_a_new_coordinator_has_loaded() -> None:
    """§13.5.5: below its high watermark no other leader can decide otherwise."""

    async def story(cluster: Cluster, nodes: list[Node], producer: TransactionalProducer) -> list[Node]:
        node_id = await producer.coordinator()
        coordinator = next(node for node in nodes if node.node_id == node_id)
        state = coordinator.broker.replicas.find("__transaction_state", 0)
        assert state is not None
        began_at, markers = state.leader_epoch_start, coordinator.broker.parts.transactions.markers
        route = markers._route

        def route_as_loaded(order: Any) -> None:
            """The decision is one that this coordinator has loaded and not committed: it has decided nothing itself."""
            state.leader_epoch_start = state.log.log_end_offset + 100
            markers._route = route
            route(order)

        markers._route = route_as_loaded
        assert await producer.end(commit=True) is NONE
        await asyncio.sleep(5)
        assert [replica(leader_of(nodes, "t", index), index).log.log_end_offset for index in range(3)] == [1, 1, 1]

        state.leader_epoch_start = began_at
        await cluster.until(lambda: all_stable(nodes))
        return nodes

    played(story)


def test_a_deleted_topic_does_not_hold_up_a_transaction() -> None:
    async def story(cluster: Cluster, nodes: list[Node], producer: TransactionalProducer) -> list[Node]:
        await cluster.delete(nodes[0], "t")
        await cluster.until(lambda: all(node.broker.image.topic("t") is None for node in nodes))

        assert await producer.end(commit=False) is NONE
        assert await producer.initialize() is NONE
        return nodes

    played(story)
