"""An episode: topics and groups of its own, then requests drawn from its seed, each sent to both brokers.

It ends early where the brokers have done different things: what follows would differ because of that.
"""

import random
from collections.abc import Iterator
from typing import Any

from ottla.broker.server.apis import APIS, METADATA, PRODUCE, Api
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from tests.broker.requests import commit, join, produce, sync, topic
from tests.broker.wire import batch
from tests.differential.connection import Address, Answer
from tests.differential.drawing import Drawing
from tests.differential.exchange import Asked, Exchange, Pair, compared, error_codes, is_alike
from tests.differential.intended import has_unknown_magic
from tests.differential.readiness import Barrier, Ranges
from tests.differential.world import World

EXCHANGES = 25
DAMAGED_SHARE = 0.08
WILDNESS = (0.0, 0.0, 0.05, 0.15, 0.4)
# What the controller does, and a broker of Kafka learns a little later.
CHANGES_METADATA = {3, 19, 20, 33, 37, 43, 44, 45, 49, 51, 57}
# Requests that set a world up, and so many of the rest that each API has its turn.
WEIGHTS = {0: 4, 1: 4, 2: 2, 3: 1, 8: 2, 9: 2, 11: 2, 18: 1, 19: 2, 32: 2, 44: 2}
# Drawn one by one, requests of transactions hardly form one: a TransactionDialogue draws them.
NOT_DRAWN = {24, 25, 26, 27, 28, 65, 66}
DAMAGE_WOULD_SHOW = {64}  # One bit further it would unregister the broker itself.


def requests_of_setup(world: World) -> Iterator[tuple[Any, int]]:
    first, second = world.topics
    topics = [topic(first, 2), topic(second, configs={"cleanup.policy": "compact"})]
    yield CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7
    yield produce(first, records=batch(b"one", b"two")), 9
    yield commit(world.groups[1], first, metadata="note"), 8
    yield join(world.groups[0]), 3
    yield sync(world.groups[0], "member-1", 1), 3


class Episode:
    """`ranges` are the versions to draw from, by API key."""

    def __init__(
        self,
        number: int,
        seed: int,
        addresses: tuple[Address, Address],
        barrier: Barrier | None,
        ranges: Ranges,
        *,
        is_again: bool = False,
    ) -> None:
        """`is_again` is the same episode with other topics and groups."""
        self._rng = random.Random(f"{seed}/{number}")
        self._world = World(f"e{number}-again-" if is_again else f"e{number}-")
        self._pair = Pair(addresses)
        self._barrier = barrier
        self._ranges = ranges

    def run(self, only: set[int] | None = None) -> Iterator[Exchange]:
        """`only` draws from these APIs, else from all but those that are not drawn."""
        try:
            yield from self._setup()
            drawn = [APIS[key] for key in self._ranges if (key not in NOT_DRAWN if only is None else key in only)]
            weights = [WEIGHTS.get(api.key, 1) for api in drawn]
            for _ in range(EXCHANGES):
                exchange = self._exchange(self._draw(self._rng.choices(drawn, weights)[0]))
                yield exchange
                if any(diverging(exchange)):
                    return
        finally:
            self._pair.close()

    def _setup(self) -> Iterator[Exchange]:
        # All episodes share the group without a name.
        nameless = Asked(DeleteGroupsRequest(groups_names=[""]), 0)
        self._pair.send(nameless, self._world)
        self._pair.outcomes(nameless)
        for request, version in requests_of_setup(self._world):
            yield self._exchange(Asked(request, version))

    def _draw(self, api: Api) -> Asked:
        rng = self._rng
        version = rng.randint(*self._ranges[api.key])
        request = Drawing(self._world, rng, rng.choice(WILDNESS)).request(api, version)
        asked, damage_seed = Asked(request, version), rng.randrange(1 << 30)
        is_damaged = rng.random() < DAMAGED_SHARE and api.key not in DAMAGE_WOULD_SHOW
        return asked._replace(damage_seed=damage_seed) if is_damaged and is_alike(asked, self._world) else asked

    def _exchange(self, asked: Asked) -> Exchange:
        self._pair.send(asked, self._world)
        exchange = compared(asked, self._pair.outcomes(asked), self._world)
        if self._barrier is not None and has_changed_metadata(exchange):
            self._barrier.wait()
        return exchange


def has_changed_metadata(exchange: Exchange) -> bool:
    """Whether the controller of Kafka may have done something."""
    request, theirs = exchange.asked.request, exchange.theirs
    if exchange.asked.api.key not in CHANGES_METADATA or not isinstance(theirs, Answer):
        return False
    if exchange.asked.api.key == METADATA:
        return any(topic.error_code for topic in theirs.message.topics)
    is_damaged = exchange.asked.damage_seed is not None
    return is_damaged or (not getattr(request, "validate_only", False) and 0 in error_codes(theirs.message))


def diverging(exchange: Exchange) -> Iterator[str]:
    """Why the brokers may have done different things."""
    asked = exchange.asked
    if asked.api.key == PRODUCE and asked.request.acks == 0 and has_unknown_magic(asked.request):
        # What is beside such a batch is written here. Both close the connection.
        yield "outcome"
    for difference in exchange.differences:
        either = (difference.ours, difference.theirs)
        if "error_code" in difference.path or difference.path == "outcome" or any(map(_has_error_code, either)):
            yield difference.path


def _has_error_code(value: Any) -> bool:
    """Of what only one of the answers has, or has otherwise."""
    if isinstance(value, dict):
        return "error_code" in value or any(map(_has_error_code, value.values()))
    return isinstance(value, list) and any(map(_has_error_code, value))
