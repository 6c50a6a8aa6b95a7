"""A client that asks for topics that are not there, which brokers then create; from there on all clients use them."""

import random
from typing import TYPE_CHECKING

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS, Client

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

WANTED = ("new-0", "new-1")
UNWANTED = "unwanted"
# While a topic is being created, or not enough brokers are known.
NOT_YET = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.REQUEST_TIMED_OUT}


class Newcomer:
    """Goes on until every topic that it wants is there: when faults have stopped, each is created sooner or later."""

    def __init__(self, world: "ClusterWorld", rng: random.Random, name: str) -> None:
        self.name = name
        self.missing = set(WANTED)
        self._client = Client(world, rng, name)
        self._world = world
        self._rng = rng
        self._version = rng.randint(4, 12)

    async def live(self) -> None:
        while self.missing and not self._world.is_over:
            await self._world.sleep_ms(self._rng.randint(500, 8_000))
            try:
                await self._ask()
            except OSError:
                continue
        self._client.close()

    async def _ask(self) -> None:
        """For those that are wanted, and for one that is not to be created."""
        wire = await self._client.any_broker()
        for names, creates in ((sorted(self.missing), True), ([UNWANTED, *sorted(INTERNAL_TOPICS)], False)):
            topics = [MetadataRequestTopic(name=name) for name in names]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=creates)
            response = await wire.call(request, self._version, within_ms=REQUEST_TIMEOUT_MS)
            for topic in response.topics:
                self._took(topic.name, ErrorCode(topic.error_code))

    def _took(self, name: str, error: ErrorCode) -> None:
        if name in WANTED and error is ErrorCode.NONE:
            self._world.judge.counts["topics created for a client"] += name in self.missing
            self.missing.discard(name)
        elif name in WANTED and error not in NOT_YET:
            self._world.judge_error(error, f"{self.name}: metadata of {name}")
        elif name == UNWANTED and error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._world.judge.violated("answers", f"{self.name}: metadata of {name} was answered {error.name}")
