"""What a broker that starts has to know from the metadata store before its parts are made.

The store may take its time to answer, as long as `initial.broker.registration.timeout.ms`. Brokers that start at the
same time with nothing agree on one cluster id.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from functools import cache, partial
from random import Random
from typing import Any

from ottla.broker.config.server import ServerConfig
from ottla.broker.config.topic import log_config
from ottla.broker.runtime import Runtime, StartError, complete
from ottla.cluster.encoding import CLUSTER_ID, topics_of
from ottla.cluster.features import finalize_in_new_cluster
from ottla.cluster.registration import min_isr_of_cluster, stored_cluster_id
from ottla.cluster.store import ABSENT, Entry, Expect, MetadataStore, NotAdmitted, Put, Snapshot, Unavailable
from ottla.storage.log_config import LogConfig
from ottla.timer.clock import Clock

RETRY_MS_MIN = 100
RETRY_MS_MAX = 3000


async def agreed_cluster_id(
    runtime: Runtime, store: MetadataStore, kept_id: str | None, new_id: Callable[[], str]
) -> tuple[str, Sequence[Entry]]:
    """The id in the store, a new one if this broker is the first; and all that is in the store. `kept_id` is that of
    the data directory, if it has one.

    Raises StartError when the store does not answer for `initial.broker.registration.timeout.ms`, at once when it does
    not let this broker in, and when it is empty and the directory is not: by what the store says, this broker would
    have to delete all its topics."""
    deadline = RetryDeadline(runtime.clock, runtime.config.initial_broker_registration_timeout_ms)
    has_waited = False
    while True:
        found = await ask(store.read, "")
        if isinstance(found, Unavailable):
            await deadline.wait_for_store(found)
            if not has_waited:
                runtime.log.metadata.warning(
                    "the metadata store does not answer, the start waits for it", why=found.reason
                )
                has_waited = True
            continue
        known = stored_cluster_id(found.entries)
        if known is not None:
            return known, found.entries
        if kept_id is not None:
            raise StartError(f"the metadata store is empty, but this broker has data of cluster {kept_id}")
        claim = Put(CLUSTER_ID, new_id().encode())
        first = [claim, min_isr_of_cluster(runtime.config.min_insync_replicas), finalize_in_new_cluster()]
        result = await ask(store.commit, [Expect(CLUSTER_ID, ABSENT)], first)
        if isinstance(result, Unavailable):
            await deadline.wait_for_store(result)


def random_id(rng: Random) -> str:
    """Kafka's text form of a random UUID, which must not begin with a dash."""
    while True:
        text = base64.urlsafe_b64encode(rng.randbytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def stored_topic_configs(config: ServerConfig, read: Callable[[], Sequence[Entry]]) -> Callable[[str], LogConfig]:
    """What the store says of topics whose logs are being loaded. It is read once, when the first is asked for: one in
    the data directory can be read only after that was locked."""

    @cache
    def configs() -> dict[str, LogConfig]:
        return {each.name: log_config(each.configs, config) for each in topics_of(read())}

    default = log_config({}, config)
    return lambda name: configs().get(name, default)


def read_all(store: MetadataStore) -> Sequence[Entry]:
    """All that is in a store of this process, which answers at once."""
    found: list[Snapshot | Unavailable] = []
    store.read("", found.append)
    (result,) = found
    assert isinstance(result, Snapshot), "what is in this process can be read"
    return result.entries


async def ask(method: Callable[..., None], *arguments: Any) -> Any:
    """What a method of the store answers. Does not give way to others where that comes within the call."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    method(*arguments, partial(complete, answered))
    return await answered


class RetryDeadline:
    """The time between attempts, longer and longer; and whether there is still time for another."""

    def __init__(self, clock: Clock, at_most_ms: int | None) -> None:
        """None: there always is."""
        self._clock = clock
        self._until_ms = None if at_most_ms is None else clock.now_ms() + at_most_ms
        self._next_ms = RETRY_MS_MIN

    async def wait_for_store(self, failure: Unavailable) -> None:
        """`wait` for a store that has failed to answer. One that refuses this broker is not asked again, where time is
        limited."""
        why = f"the metadata store cannot be used: {failure.reason}"
        if isinstance(failure, NotAdmitted) and self._until_ms is not None:
            raise StartError(why)
        await self.wait(why)

    async def wait(self, why: str) -> None:
        """Until the next attempt. Raises StartError, which says why, when it was the last one."""
        now_ms = self._clock.now_ms()
        if self._until_ms is not None and now_ms >= self._until_ms:
            raise StartError(why)
        # Not on the wheel: the runtime has no end of an event yet when a broker starts.
        wait_s = self._next_ms / 1000
        self._next_ms = min(2 * self._next_ms, RETRY_MS_MAX)
        await asyncio.sleep(wait_s)
