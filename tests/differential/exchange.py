"""One request to both brokers, and whether they answer the same."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.broker.server.apis import APIS, PRODUCE, Api
from ottla.protocol.client import SIZE_BYTES, RequestFramer
from ottla.protocol.codec import decode_whole
from ottla.protocol.primitives import DecodeError, skip_header_tags
from ottla.protocol.schema import fields_of, is_flexible
from tests.differential.comparing import Difference, differences, plain
from tests.differential.connection import CLIENT_ID, Address, Answer, Connection, Outcome, Silence
from tests.differential.world import OURS, THEIRS, World

# A request that neither answers at once may be parked; one that only one of them answers is waited for.
HEADER_BYTES = 10
PARKED_AFTER_S = 0.25
ANSWERED_WITHIN_S = 4.0

Damage = Callable[[bytes, random.Random], bytes]


class Asked(NamedTuple):
    """A request, and what was done to its bytes."""

    request: Any
    version: int
    damage_seed: int | None = None

    @property
    def api(self) -> Api:
        return APIS[type(self.request).API_KEY]

    def __str__(self) -> str:
        damaged = "" if self.damage_seed is None else f", its bytes damaged (seed {self.damage_seed})"
        return f"{self.api.name} v{self.version}{damaged}: {self.request!r}"


class Exchange(NamedTuple):
    asked: Asked
    ours: Outcome
    theirs: Outcome
    differences: list[Difference]


class Pair:
    """A connection to each broker. One that a broker closes is opened again for the next request."""

    def __init__(self, addresses: tuple[Address, Address]) -> None:
        self._addresses = addresses
        self._connections: list[Connection | None] = [None, None]

    def send(self, asked: Asked, world: World) -> None:
        frames = [_frame(asked, world, side) for side in (OURS, THEIRS)]
        if asked.damage_seed is not None:
            frames = [damaged(frame, random.Random(asked.damage_seed)) for frame in frames]
        for side, frame in enumerate(frames):
            self._connection(side).send(frame)

    def outcomes(self, asked: Asked, *, parked_after_s: float = PARKED_AFTER_S) -> tuple[Outcome, Outcome]:
        if asked.api.key == PRODUCE and asked.request.acks == 0 and asked.damage_seed is None:
            return self._outcomes_without_answers()
        connections = [self._connection(side) for side in (OURS, THEIRS)]
        waits = [connections[OURS].has_answer(parked_after_s), connections[THEIRS].has_answer(parked_after_s)]
        if not any(waits):
            self.close()
            return Silence(), Silence()
        outcomes = tuple(each.receive(type(asked.request), asked.version, ANSWERED_WITHIN_S) for each in connections)
        for side, outcome in enumerate(outcomes):
            if not isinstance(outcome, Answer):
                self._close(side)
        return outcomes[OURS], outcomes[THEIRS]

    def has_answer(self, within_s: float) -> bool:
        """Whether one of the brokers has sent something."""
        return self._connection(OURS).has_answer(within_s) or self._connection(THEIRS).has_answer(0)

    def close(self) -> None:
        for side in (OURS, THEIRS):
            self._close(side)

    def _outcomes_without_answers(self) -> tuple[Outcome, Outcome]:
        """Of Produce with acks=0: silence, as long as the connection still answers something else."""
        probe = Asked(APIS[18].request_class()(), 0)
        self.send(probe, World(""))
        ours, theirs = (Silence() if isinstance(each, Answer) else each for each in self.outcomes(probe))
        return ours, theirs

    def _connection(self, side: int) -> Connection:
        connection = self._connections[side]
        if connection is None:
            connection = self._connections[side] = Connection(self._addresses[side])
        return connection

    def _close(self, side: int) -> None:
        connection = self._connections[side]
        if connection is not None:
            connection.close()
            self._connections[side] = None


def compared(asked: Asked, outcomes: tuple[Outcome, Outcome], world: World) -> Exchange:
    ours, theirs = outcomes
    if isinstance(ours, Answer) and isinstance(theirs, Answer):
        world.ids.learn(ours.message, theirs.message)
        values = [
            plain(answer.message, world.ids, side, world, asked.version) for side, answer in enumerate((ours, theirs))
        ]
        return Exchange(asked, ours, theirs, list(differences(*values)))
    found = [] if type(ours) is type(theirs) else [Difference("outcome", ours, theirs)]
    return Exchange(asked, ours, theirs, found)


def error_codes(message: Any) -> Iterator[int]:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif field.struct is not None:
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    yield from error_codes(each)


def damaged(frame: bytes, rng: random.Random) -> bytes:
    """A frame of the right size whose body is not what it says."""
    body = bytearray(frame[4:])
    start = HEADER_BYTES + len(CLIENT_ID)
    match rng.randrange(4) if start < len(body) else 1:
        case 0:
            del body[rng.randrange(start, len(body)) :]
        case 1:
            body += rng.randbytes(rng.randrange(1, 9))
        case 2:
            body[rng.randrange(start, len(body))] ^= 1 << rng.randrange(8)
        case _:
            body[rng.randrange(start, len(body))] = rng.choice((0x00, 0x7F, 0x80, 0xFF))
    return struct.pack(">i", len(body)) + bytes(body)


def why_unreadable(asked: Asked) -> str | None:
    """What is wrong with the body of a damaged request; None where it can be read."""
    assert asked.damage_seed is not None, "it was damaged"
    cls = type(asked.request)
    frame = damaged(_built(asked.request, asked.version), random.Random(asked.damage_seed))
    start = SIZE_BYTES + HEADER_BYTES + len(CLIENT_ID)
    try:
        if is_flexible(cls, asked.version):
            start = skip_header_tags(memoryview(frame), start, len(frame))
        decode_whole(cls, asked.version, frame, start)
    except DecodeError as error:
        return "bytes left" if "bytes left" in str(error) else str(error)
    return None


def is_alike(asked: Asked, world: World) -> bool:
    """Whether both brokers get the same bytes, so that damage does the same to both."""
    return _frame(asked, world, OURS) == _frame(asked, world, THEIRS)


def _frame(asked: Asked, world: World, side: int) -> bytes:
    return _built(world.ids.for_broker(asked.request, side), asked.version)


def _built(request: Any, version: int) -> bytes:
    return RequestFramer(type(request), version, CLIENT_ID).build(request, 1)
