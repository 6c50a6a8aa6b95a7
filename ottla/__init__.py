"""A broker that speaks Kafka's wire protocol.

`Broker` and `BrokerThread` put one into a program of yours, `Cluster` and `ClusterThread` several; `ottla serve` runs
them by themselves.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.embedded import Broker, BrokerThread, Cluster, ClusterThread

__all__ = ["Broker", "BrokerThread", "Cluster", "ClusterThread"]


def __getattr__(name: str) -> object:
    # Imported when asked for: the command line and the packages below should not pay for it.
    if name in __all__:
        from ottla.testing import embedded as embedding

        return getattr(embedding, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
