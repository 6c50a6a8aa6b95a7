"""A principal that asks for all that it may and may not have."""

import asyncio
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.coordinator.runtime.hashing import partition_for
from tests.simulation.cluster.client import ClusterWire
from tests.simulation.cluster.principals import cluster_asks, group_asks, record_asks, topic_asks, transaction_asks
from tests.simulation.cluster.principals.asks import TRANSACTIONAL_IDS, Ask, Draw
from tests.simulation.cluster.principals.court import Court, Who

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

# Until members that are gone are forgotten.
GROUPS_FORGET_MS = 20_000
LONGEST_REST_MS = 250
# After so long nothing from before is under way.
CALM_MS, CLOSES_WITHIN_MS = 6_000, 1_500


class Visitor:
    def __init__(self, world: "ClusterWorld", court: Court, who: Who, counter: Iterator[int]) -> None:
        self.who = who
        self._world = world
        self._court = court
        self._rng: random.Random = world.make_rng(f"principal {who}")
        self.draw = Draw(self._rng, counter, self._id_of, world.wall_ms, creates=world.plan.auto_creates)
        self._wires: dict[int, ClusterWire] = {}
        self._session = record_asks.Session(self.draw)
        self._session_node = 1
        self._producer = transaction_asks.Producer(self._rng.choice(TRANSACTIONAL_IDS))

    async def live(self) -> None:
        while not self._world.writing_is_over:
            await self._world.sleep_ms(self._rng.randint(5, LONGEST_REST_MS))
            draw = self._rng.random()
            if draw < 0.25:
                await self._fetch_on()
            elif draw < 0.29:
                await self._produce_without_answer()
            else:
                await self.put(self._draw_ask())
        await asyncio.sleep(GROUPS_FORGET_MS / 1000)
        self.close()

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    async def put(self, ask: Ask, node_id: int | None = None) -> bool:
        """Whether it was answered, by whatever broker is asked if none is named; the answer has been judged."""
        try:
            wire = await self._wire_to(self._place_of(ask) if node_id is None else node_id)
            process, since_us = self._world.process_behind(wire), self._world.now_us
            acts = self._court.sent(self.who, process, ask.deeds)
            response = await wire.call(ask.request, ask.version, within_ms=ask.within_ms)
        except OSError:
            return False
        for act in acts:
            act.until_us = self._world.now_us
        self._court.answered(self.who, process, since_us, ask, response)
        ask.took(response)
        return True

    async def _fetch_on(self) -> None:
        """In the session; sometimes another one is begun at another broker."""
        if self._rng.random() < 0.1:
            self._session = record_asks.Session(self.draw)
            self._session_node = self._rng.choice(list(self._world.nodes))
        if not await self.put(self._session.ask(self.draw), self._session_node):
            self._session.begin_again()

    async def _produce_without_answer(self) -> None:
        """With acks=0. Where something is denied, the connection closes."""
        ask = record_asks.produce(self.draw)
        ask.request.acks, version = 0, min(ask.version, record_asks.IDS_SINCE - 1)
        try:
            node_id = self._place_of(ask)
            wire = await self._world.connect_to(self._world.nodes[node_id].address, self.who.host)
        except OSError:
            return
        process, since_us = self._world.process_behind(wire), self._world.now_us
        was_calm = self._world.has_been_calm_for_ms > CALM_MS
        self._court.sent(self.who, process, ask.deeds)
        wire.send(ask.request, version)
        await self._let_it_close(wire, waits_for_start=was_calm)
        if was_calm and not wire.is_lost:
            self._court.stayed_open(self.who, process, since_us, ask)
        wire.close()

    async def _let_it_close(self, wire: ClusterWire, *, waits_for_start: bool) -> None:
        """A broker that starts keeps what its clients send until it serves."""
        serves = self._world.serves
        has_served = serves(wire)
        await self._world.sleep_ms(CLOSES_WITHIN_MS)
        while waits_for_start and not has_served and not wire.is_lost:
            has_served = serves(wire)
            await self._world.sleep_ms(CLOSES_WITHIN_MS)

    def _draw_ask(self) -> Ask:
        families: list[Any] = [record_asks, record_asks, topic_asks, topic_asks, group_asks, cluster_asks]
        if self._world.plan.transacts:
            families.append(transaction_asks)
            if self._rng.random() < 0.15:
                return self._producer.ask(self.draw)
        if self._rng.random() < 0.03:
            return transaction_asks.init_producer_id(self.draw)
        ask: Ask = self._rng.choice(self._rng.choice(families).ASKS)(self.draw)
        return ask

    def _place_of(self, ask: Ask) -> int:
        """The broker that is to be asked, as the store has it; mostly."""
        if ask.coordinator_of is not None:
            place = self._partition_of(CONSUMER_OFFSETS, ask.coordinator_of)
        elif ask.transactional_id is not None:
            place = self._partition_of(TRANSACTION_STATE, ask.transactional_id)
        else:
            place = ask.leader_of
        state = None if place is None else self._world.truth.partition(*place)
        if state is None or state.leader not in self._world.nodes or self._rng.random() < 0.1:
            return self._rng.choice(list(self._world.nodes))
        return int(state.leader)

    def _partition_of(self, topic: str, key: str) -> tuple[str, int] | None:
        known = self._world.truth.image.topic(topic)
        return None if known is None else (topic, partition_for(key, len(known.partitions)))

    def _id_of(self, name: str) -> bytes | None:
        topic = self._world.truth.image.topic(name)
        return None if topic is None else topic.topic_id

    async def _wire_to(self, node_id: int) -> ClusterWire:
        wire = self._wires.get(node_id)
        if wire is None or wire.is_lost:
            address = self._world.nodes[node_id].address
            wire = self._wires[node_id] = await self._world.connect_to(address, self.who.host)
        return wire
