"""Which cluster a metadata store is of, as agreed by all who start at the same time with nothing."""

from collections.abc import Callable, Sequence

from ottla.broker.metadata.store_calls import RetryDeadline, ask
from ottla.broker.runtime import Runtime, StartError
from ottla.cluster.encoding import CLUSTER_ID
from ottla.cluster.registration import stored_cluster_id
from ottla.cluster.store import ABSENT, Entry, Expect, MetadataStore, Put, Unavailable


async def agreed_cluster_id(
    runtime: Runtime, store: MetadataStore, kept_id: str | None, new_id: Callable[[], str]
) -> tuple[str, Sequence[Entry]]:
    """The id in the store, a new one if this broker is the first; and all that is in the store. `kept_id` is that of
    the data directory, if it has one.

    Raises StartError when the store does not answer for `initial.broker.registration.timeout.ms`, and when it is empty
    and the directory is not: by what the store says, this broker would have to delete all its topics."""
    deadline = RetryDeadline(runtime.clock, runtime.config.initial_broker_registration_timeout_ms)
    has_waited = False
    while True:
        found = await ask(store.read, "")
        if isinstance(found, Unavailable):
            if not has_waited:
                runtime.log.warning("the metadata store does not answer, the start waits for it", why=found.reason)
                has_waited = True
            await deadline.wait(f"the metadata store cannot be used: {found.reason}")
            continue
        known = stored_cluster_id(found.entries)
        if known is not None:
            return known, found.entries
        if kept_id is not None:
            raise StartError(f"the metadata store is empty, but this broker has data of cluster {kept_id}")
        claim = Put(CLUSTER_ID, new_id().encode())
        result = await ask(store.commit, [Expect(CLUSTER_ID, ABSENT)], [claim])
        if isinstance(result, Unavailable):
            await deadline.wait(f"the metadata store cannot be used: {result.reason}")
