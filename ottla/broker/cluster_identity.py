"""Which cluster a metadata store is of, as agreed by all who start at the same time with nothing."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.store_calls import Patience, ask
from ottla.cluster.encoding import CLUSTER_ID
from ottla.cluster.registration import stored_cluster_id
from ottla.cluster.store import ABSENT, Entry, Expect, MetadataStore, Put, Unavailable

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


async def agreed_cluster_id(
    broker: "Broker", store: MetadataStore, suggested: Callable[[], str]
) -> tuple[str, Sequence[Entry]]:
    """The id in the store, which is the suggested one if this broker is the first; and all that is in the store.

    Raises StartError when the store does not answer for `initial.broker.registration.timeout.ms`."""
    patience = Patience(broker, broker.config.initial_broker_registration_timeout_ms)
    has_waited = False
    while True:
        found = await ask(store.read, "")
        if isinstance(found, Unavailable):
            if not has_waited:
                broker.log.warning("the metadata store does not answer, the start waits for it", why=found.reason)
                has_waited = True
            await patience.wait(f"the metadata store cannot be used: {found.reason}")
            continue
        known = stored_cluster_id(found.entries)
        if known is not None:
            return known, found.entries
        claim = Put(CLUSTER_ID, suggested().encode())
        result = await ask(store.commit, [Expect(CLUSTER_ID, ABSENT)], [claim])
        if isinstance(result, Unavailable):
            await patience.wait(f"the metadata store cannot be used: {result.reason}")
