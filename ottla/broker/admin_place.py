"""A broker's place on an admin listener: on one of its own, or on that of its process.

Imported with the broker. What it brings is imported when there is a listener: a broker without one starts sooner.
"""

from typing import TYPE_CHECKING

from ottla.broker.admin.health import BrokerLife
from ottla.broker.assembly import Parts
from ottla.broker.runtime import LoopRuntime
from ottla.broker.server.listeners import Listeners
from ottla.broker.server.network import Network

if TYPE_CHECKING:
    from ottla.broker.admin.broker_admin import BrokerAdmin
    from ottla.broker.admin.site import AdminSite


class AdminPlace:
    """`open`, then `assembled` when the broker has its parts; `end` at any time, also without the others."""

    def __init__(self, shared_site: "AdminSite | None") -> None:
        self._shared_site = shared_site
        self.own_site: AdminSite | None = None
        self.broker: BrokerAdmin | None = None
        """None without a listener."""

    @property
    def own_url(self) -> str:
        """Of the broker's own listener; empty where it has none."""
        return "" if self.own_site is None else self.own_site.url

    async def open(self, runtime: LoopRuntime, life: BrokerLife, network: Network, listeners: Listeners) -> None:
        """Where the broker's properties name an address: from then on it is asked about that broker. Raises
        StartError."""
        address = runtime.config.ottla_admin_listener
        if address is None:
            return
        from ottla.broker.admin.broker_admin import BrokerAdmin
        from ottla.broker.admin.site import AdminSite

        self.broker = BrokerAdmin(runtime, life)
        site = self._shared_site
        if site is None:
            site = AdminSite(runtime)
            await site.open(network, address)
            self.own_site = site
        site.add(self.broker)
        listeners.admin_opened(site.url)

    def assembled(self, parts: Parts) -> None:
        """The pages have what they show. Raises StartError."""
        if self.broker is not None:
            probe = parts.health_probe()
            parts.count_for_metrics()
            self.broker.assembled(probe, lambda: parts.metric_sources(probe), parts.node_view)

    def end(self) -> None:
        """Nothing is asked any more about this broker on a listener of its own; another is left to others."""
        if self.broker is not None and self.broker.probe is not None:
            self.broker.probe.stop()
        if self.own_site is not None:
            self.own_site.close()
            self.own_site = None
