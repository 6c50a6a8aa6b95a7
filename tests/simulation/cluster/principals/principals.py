"""What worlds with an authorizer have: who each client is, and what is looked at when faults have stopped."""

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from ottla.broker.server.connection import Connection
from ottla.cluster.image import MetadataImage
from ottla.security.authentication import Principal, parse_principal
from tests.simulation.cluster.principals import cluster_asks, group_asks, topic_asks
from tests.simulation.cluster.principals.asks import GROUPS, NAMES
from tests.simulation.cluster.principals.court import Court, Who
from tests.simulation.cluster.principals.operator import OPERATOR, STAFF, Operator, rights_of_staff
from tests.simulation.cluster.principals.rights import ANY_PRINCIPAL
from tests.simulation.cluster.principals.visitor import Visitor

if TYPE_CHECKING:
    from tests.simulation.cluster.node import Node
    from tests.simulation.cluster.world import ClusterWorld

VISITORS = [
    Who("User:mallory", "10.0.0.1"),
    # Begins as a super user does.
    Who("User:operator-2", "10.0.0.2"),
    Who("User:mallory", "10.0.0.3"),
]
BROKER = "User:broker"
ADMINS = {"admin", "user-admin", "auditor", OPERATOR.host}
PROBES_MAX, PROBE_AGAIN_MS = 20, 200


class Principals:
    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        rng = world.make_rng("who is who")
        self._visitors_count = rng.randint(1, len(VISITORS))
        # Where an ACL is about every topic, there is none that no ACL is about.
        self.has_staff = not world.plan.is_open and rng.random() < 0.5
        self.court = Court(world)
        changing = sorted({who.principal for who in VISITORS})
        self._operator = Operator(world, self.court, changing if self.has_staff else [*changing, ANY_PRINCIPAL])
        counter = itertools.count(1)
        self._visitors = [Visitor(world, self.court, who, counter) for who in VISITORS[: self._visitors_count]]
        self._principals = {who.host: parse_principal(who.principal) for who in VISITORS}

    def principal_of(self, host: str) -> Principal:
        """As a login would give it."""
        if host in self._principals:
            return self._principals[host]
        if host.startswith("broker-"):
            return parse_principal(BROKER)
        return parse_principal(STAFF if self.has_staff and host not in ADMINS else OPERATOR.principal)

    def connection(self, server: Any, listener_name: str) -> "KnownConnection":
        return KnownConnection(server, listener_name, self)

    def note(self, node: "Node", image: MetadataImage) -> None:
        """A broker has another image."""
        self.court.beliefs.note(node.broker_process, image)

    async def begin(self) -> None:
        """Before any other client comes."""
        await self._operator.begin(rights_of_staff() if self.has_staff else [])

    def spawn(self) -> None:
        self._world.spawn_client(OPERATOR.host, self._operator.live())
        for visitor in self._visitors:
            self._world.spawn_client(visitor.who.host, visitor.live())

    # When faults have stopped.

    def still_wrong(self) -> list[str]:
        """All brokers have the ACLs that the store has."""
        return [] if self._operator.is_known_everywhere() else ["brokers have other ACLs than the store"]

    async def probe(self) -> None:
        """All brokers decide alike: there is one set of ACLs now."""
        for who in VISITORS:
            visitor = Visitor(self._world, self.court, who, itertools.count(1_000_000))
            draw = visitor.draw
            for node_id in self._world.nodes:
                for ask in (
                    topic_asks.named(draw, list(NAMES), creates=False),
                    topic_asks.metadata_of_all(draw),
                    group_asks.describe_groups(draw),
                    group_asks.list_groups(draw),
                    cluster_asks.describe_cluster(draw),
                    cluster_asks.describe_acls(draw),
                ):
                    await self._answered(visitor, ask, node_id)
            visitor.close()

    async def _answered(self, visitor: Visitor, ask: Any, node_id: int) -> None:
        for _ in range(PROBES_MAX):
            if await visitor.put(ask, node_id):
                return
            await asyncio.sleep(PROBE_AGAIN_MS / 1000)
        self._world.judge.violated("I-20", f"broker {node_id} does not answer {ask.request}")

    async def judge_deeds(self) -> None:
        """What was written and committed, when nothing is any more."""
        for name in NAMES:
            if self._world.truth.image.topic(name) is not None:
                for record in self._world.rest.final_records(name, 0):
                    self.court.check_record(name, bytes(record.value or b""))
        for group in GROUPS:
            await self._operator.read_offsets(group)


class KnownConnection(Connection):
    """One whose client has logged in: who it is, its host says. No listener of the simulation has SASL."""

    __slots__ = ("_principals",)

    def __init__(self, owner: Any, listener_name: str, principals: Principals) -> None:
        super().__init__(owner, listener_name)
        self._principals = principals

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.principal = self._principals.principal_of(self.peer_host)
