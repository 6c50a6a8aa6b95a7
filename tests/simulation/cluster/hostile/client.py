"""A client that sends a cluster bad input on connections of its own, all the time.

Frames that are none, garbage, requests that announce what does not come, requests that have to be refused, and
connections that end anywhere. Each complete request is answered with an error, or its connection is closed (I-18); who
else uses the cluster notices nothing of it; and nothing is left of it (I-19).
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.protocol.client import WireClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.schema import Message
from tests.fuzz import payloads
from tests.protocol.fuzz_decoders import damage
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS
from tests.simulation.cluster.hostile.asks import FAMILIES, OF_GROUPS, Ask, Surroundings
from tests.simulation.cluster.node import Node
from tests.simulation.network import Transport

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

NAME = "hostile"
CLOSES: tuple[payloads.Payload, ...] = (
    payloads.negative_size,
    payloads.tls_hello,
    payloads.http,
    payloads.unserved,
)
"""What no broker waits after for more."""
ANYTHING: tuple[payloads.Payload, ...] = (
    payloads.noise,
    payloads.huge_claim,
    payloads.framed_noise,
    payloads.plausible_header,
    payloads.hostile_count,
    payloads.truncated,
)
MAKES_PARTITIONS = (CreateTopicsRequest, CreatePartitionsRequest)
# After so long nothing from before the calm is under way.
CALM_MS = 6_000
LOOK_MS, LOOKS = 100, 30
# How often it does what: below the first it asks for what is refused.
DAMAGED_FROM, FRAMES_FROM, ANYTHING_FROM = 0.5, 0.65, 0.85
HEADER_BYTES = 4 + 2 + 2 + 4 + 2 + len(NAME)


class Stranger(asyncio.Protocol):
    """Takes what comes for what it is: bytes."""

    transport: Transport

    def __init__(self) -> None:
        self.received_bytes = 0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class Asked:
    """A request under way to a broker, and what the broker has of the group that a heartbeat names."""

    def __init__(self, node: Node, request: Any) -> None:
        self._node = node
        self._group_id = request.group_id if isinstance(request, HeartbeatRequest) else None
        self._hosted = self._look()
        self._was_loading = self._hosted is not None and self._hosted.is_loading

    @property
    def may_have_been_loading(self) -> bool:
        """At some moment since the request was sent: whatever is loaded begins with an object of its own."""
        if self._group_id is None:
            return False
        now = self._look()
        return self._was_loading or now is not self._hosted

    def _look(self) -> Any:
        if self._group_id is None or not self._node.is_serving:
            return None
        return self._node.broker.parts.groups.topic.partition_of(self._group_id)


class HostileClient:
    def __init__(self, world: "ClusterWorld", rng: random.Random) -> None:
        self._world, self._rng = world, rng

    async def live(self) -> None:
        while not self._world.is_over:
            longest_ms = 2_000 if self._world.is_calm else 300
            await self._world.sleep_ms(self._rng.randint(5, longest_ms))
            node = self._rng.choice(list(self._world.nodes.values()))
            # What verifies a transaction is kept for as long as a producer: who judges that waits for no new ones.
            draw = self._rng.uniform(FRAMES_FROM if self._world.writing_is_over else 0, 1)
            try:
                if draw < DAMAGED_FROM:
                    await self._ask(node)
                elif draw < FRAMES_FROM:
                    await self._send(node, self._damaged_request)
                elif draw < ANYTHING_FROM:
                    await self._send(node, self._rng.choice(CLOSES), has_to_react=True)
                else:
                    await self._send(node, self._rng.choice(ANYTHING))
            except OSError:
                self._world.judge.counts["hostile connections lost"] += 1

    async def _ask(self, node: Node) -> None:
        """On one connection, a few times."""
        wire = await self._world.connect_to(node.address, NAME)
        try:
            for _ in range(self._rng.randint(1, 4)):
                ask: Callable[[Surroundings], Ask] = self._rng.choice(self._rng.choice(FAMILIES))
                request, version = ask(self._surroundings())
                asked = Asked(node, request)
                response = await wire.call(request, version, within_ms=REQUEST_TIMEOUT_MS)
                self._judge(ask.__name__, request, response, may_be_loading=asked.may_have_been_loading)
        finally:
            wire.close()

    def _judge(self, what: str, request: Any, response: Any, *, may_be_loading: bool = False) -> None:
        """A coordinator that loads answers all heartbeats with NONE, also those of strangers (§4.3.2)."""
        codes = {ErrorCode(code) for code in error_codes(response)}
        if may_be_loading and codes == {ErrorCode.NONE}:
            self._world.judge.counts["hostile heartbeats while groups load"] += 1
            return
        if not codes - {ErrorCode.NONE} or ErrorCode.UNKNOWN_SERVER_ERROR in codes:
            how = f"{what}: {request} was answered {response}"
            self._world.judge.violated("answers", how)
        self._world.judge.counts["hostile requests refused"] += 1

    async def _send(self, node: Node, payload: payloads.Payload, *, has_to_react: bool = False) -> None:
        world, rng = self._world, self._rng
        is_calm = world.has_been_calm_for_ms > CALM_MS and node.is_serving
        transport = await world.network.connect(Stranger, *node.address, from_host=NAME)
        stranger: Stranger = transport.get_protocol()
        data = payload(rng)
        world.trace.note(NAME, getattr(payload, "__name__", ""), len(data))
        transport.write(data)
        for _ in range(LOOKS if has_to_react else rng.randint(0, 5)):
            await world.sleep_ms(LOOK_MS)
            if stranger.is_lost or stranger.received_bytes:
                break
        if stranger.is_lost:
            world.judge.counts["hostile connections closed"] += 1
        elif has_to_react and is_calm and node.is_serving and not stranger.received_bytes:
            world.judge.violated("I-18", f"{node.host} neither answers nor closes {data[:60]!r}")
        self._leave(transport)

    def _leave(self, transport: Transport) -> None:
        """In an orderly way, or with a reset."""
        if self._rng.random() < 0.5:
            transport.close()
        else:
            transport.abort()

    def _damaged_request(self, rng: random.Random) -> bytes:
        """Behind a header that is right. Not of groups: the one that joins has to be a stranger to them. What makes
        partitions stays as it is: a damaged count may be one of thousands that a broker is right to make."""
        families = [family for family in FAMILIES if family is not OF_GROUPS]
        request, version = rng.choice(rng.choice(families))(self._surroundings())
        frame = WireClient(NAME).send(request, version)
        damaged = damage(frame[HEADER_BYTES:], rng)
        body = frame[4:] if isinstance(request, MAKES_PARTITIONS) else frame[4:HEADER_BYTES] + damaged
        return len(body).to_bytes(4, "big") + body

    def _surroundings(self) -> Surroundings:
        world = self._world
        partition = self._rng.choice(world.partitions)
        state = world.truth.partition(*partition)
        return Surroundings(
            self._rng,
            partition,
            leader_epoch=0 if state is None else state.leader_epoch,
            wall_ms=world.wall_ms(),
            groups=sorted({member.habits.group_id for member in world.members}),
            transactional_ids=sorted(world.book.lines) or ["pay-0"],
            producers=[(each.producer_id, each.producer_epoch) for each in world.producers if each.producer_id >= 0],
            session_ids=[
                session_id
                for node in world.nodes.values()
                if node.is_serving
                for session_id in node.broker.fetch_sessions._sessions
            ],
        )


def error_codes(message: Any) -> Iterator[int]:
    """All that a response has, wherever they are."""
    if isinstance(message, list | tuple):
        for each in message:
            yield from error_codes(each)
    elif isinstance(message, Message):
        for name in type(message).__slots__:
            value = getattr(message, name)
            if name.endswith("error_code"):
                yield value
            elif isinstance(value, list | tuple | Message):
                yield from error_codes(value)
