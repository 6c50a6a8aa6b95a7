"""A dialogue of several clients with the coordinator of one group, drawn from a seed.

Each client has a connection of its own, for joins and syncs wait for each other. After every request the group is
described on another connection, again until both brokers say the same: one of them may have been later.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.requests import commit, delete_offsets, fetch_offsets, heartbeat, join, leave, sync
from tests.differential.connection import Address, Answer
from tests.differential.exchange import Asked, Exchange, Pair, compared
from tests.differential.intended import elects_another_leader
from tests.differential.readiness import Ranges
from tests.differential.world import OURS, World

STEPS = 25
CLIENTS = 4
ANSWERED_AFTER_S = 0.004
ALIKE_WITHIN_S = 0.4
STRANGER = "stranger"
SESSION_TIMEOUT_MS = 600_000


@dataclass
class GroupClient:
    """What one client knows of its membership."""

    pair: Pair
    instance: str | None
    member_id: str = ""
    generation: int = -1
    members: list[str] = field(default_factory=list)
    """Of a leader: who gets an assignment."""
    waits_for: Asked | None = None


class Dialogue:
    def __init__(
        self, number: int, seed: int, addresses: tuple[Address, Address], ranges: Ranges, *, is_again: bool = False
    ) -> None:
        """`is_again` is the same dialogue with another group, and slower: what two clients send at nearly the same time
        may be handled in another order by one of the brokers."""
        self._rng = rng = random.Random(f"{seed}/dialogue {number}")
        self._world = World(f"e{number}-again-" if is_again else f"e{number}-")
        self._answered_after_s = ANSWERED_AFTER_S * (20 if is_again else 1)
        self._ranges = ranges
        self._group = self._world.groups[0]
        self._control = Pair(addresses)
        instances = rng.choice(((None,) * CLIENTS, ("i-1", "i-2", None, "i-1")))
        self._clients = [GroupClient(Pair(addresses), instance) for instance in instances]

    def run(self) -> Iterator[Exchange]:
        try:
            for _ in range(STEPS):
                free = [client for client in self._clients if client.waits_for is None]
                if not free:
                    return
                for exchange in self._step(self._rng.choice(free)):
                    yield exchange
                    if elects_another_leader(exchange):
                        # Other members wait for other leaders from here on.
                        return
        finally:
            for client in self._clients:
                client.pair.close()
            self._control.close()

    def _step(self, client: GroupClient) -> Iterator[Exchange]:
        asked = Asked(*self._draw(client))
        client.waits_for = asked
        client.pair.send(asked, self._world)
        yield from self._answers()
        yield self._described()
        if self._rng.random() < 0.1:
            yield self._on_control(*self._draw_administration())
            yield from self._answers()

    def _described(self) -> Exchange:
        request, version = DescribeGroupsRequest(groups=[self._group]), self._version(15)
        deadline = time.monotonic() + ALIKE_WITHIN_S
        while True:
            exchange = self._on_control(request, version)
            if not exchange.differences or time.monotonic() > deadline:
                return exchange
            time.sleep(ANSWERED_AFTER_S)

    def _answers(self) -> Iterator[Exchange]:
        """Those that have come, until no more do."""
        is_first = True
        while ready := [
            client
            for client in self._clients
            if client.waits_for and client.pair.has_answer(self._answered_after_s if is_first else 0)
        ]:
            is_first = False
            for client in ready:
                assert client.waits_for is not None, "it was asked"
                asked, client.waits_for = client.waits_for, None
                exchange = compared(asked, client.pair.outcomes(asked), self._world)
                self._learn(client, exchange)
                yield exchange

    def _on_control(self, request: Any, version: int) -> Exchange:
        asked = Asked(request, version)
        self._control.send(asked, self._world)
        return compared(asked, self._control.outcomes(asked), self._world)

    def _learn(self, client: GroupClient, exchange: Exchange) -> None:
        if not isinstance(exchange.ours, Answer) or not isinstance(exchange.asked.request, JoinGroupRequest):
            return
        answer = exchange.ours.message
        if answer.error_code in (0, 79):
            client.member_id = self._world.ids.shared(OURS, "member_id", answer.member_id)
        if answer.error_code == 0:
            client.generation = answer.generation_id
            client.members = [self._world.ids.shared(OURS, "member_id", each.member_id) for each in answer.members]

    def _version(self, key: int) -> int:
        return self._rng.randint(*self._ranges[key])

    def _draw(self, client: GroupClient) -> tuple[Any, int]:
        rng = self._rng
        member_id = client.member_id if rng.random() < 0.93 else rng.choice(("", STRANGER))
        generation = client.generation if rng.random() < 0.93 else rng.choice((-1, 0, client.generation + 1))
        match rng.choices(("join", "sync", "heartbeat", "leave", "commit", "offsets"), (8, 6, 3, 2, 2, 1))[0]:
            case "join":
                return self._join(client, member_id)
            case "sync":
                return self._sync(client, member_id, generation)
            case "heartbeat":
                return heartbeat(self._group, member_id, generation), self._version(12)
            case "leave":
                instance = client.instance if rng.random() < 0.5 else None
                request = leave(self._group, (member_id if instance is None else "", instance))
                request.member_id = member_id
                return request, self._version(13)
            case "commit":
                return commit(self._group, "e-topic", generation, member_id, client.instance), self._version(8)
            case _:
                return fetch_offsets(self._group, "e-topic"), rng.randint(1, 7)

    def _join(self, client: GroupClient, member_id: str) -> tuple[Any, int]:
        rng = self._rng
        request = join(
            self._group,
            member_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            group_instance_id=client.instance,
            protocol_type="consumer" if rng.random() < 0.95 else rng.choice(("connect", "")),
            protocols=rng.choices((["range"], ["roundrobin", "range"], ["roundrobin"], []), (20, 6, 2, 1))[0],
        )
        for protocol in request.protocols:
            protocol.metadata = rng.choice((b"one", b"two"))
        # Instances are joined with versions that have them, or they would come as members without.
        return request, rng.randint(5, 9) if client.instance else self._version(11)

    def _sync(self, client: GroupClient, member_id: str, generation: int) -> tuple[Any, int]:
        assignments = [
            SyncGroupRequestAssignment(member_id=each, assignment=b"of " + each[-1:].encode())
            for each in client.members
        ]
        request: SyncGroupRequest = sync(self._group, member_id, generation, assignments)
        request.protocol_type = self._rng.choice(("consumer", "consumer", None, "connect"))
        request.protocol_name = self._rng.choice(("range", "range", None))
        return request, self._version(14)

    def _draw_administration(self) -> tuple[Any, int]:
        match self._rng.randrange(3):
            case 0:
                return ListGroupsRequest(), self._version(16)
            case 1:
                return DeleteGroupsRequest(groups_names=[self._group]), self._version(42)
            case _:
                return delete_offsets(self._group, "e-topic"), 0
