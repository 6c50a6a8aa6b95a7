"""A broker that speaks Kafka's wire protocol.

`Broker` and `BrokerThread` put one into a program of yours, `Cluster` and `ClusterThread` several; `ottla serve` runs
them by themselves.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.embedded import BrokerThread, ClusterThread
    from ottla.testing.embedded import EmbeddedBroker as Broker
    from ottla.testing.embedded import EmbeddedCluster as Cluster

__all__ = ["Broker", "BrokerThread", "Cluster", "ClusterThread"]

_CLASSES = {
    "Broker": "EmbeddedBroker",
    "BrokerThread": "BrokerThread",
    "Cluster": "EmbeddedCluster",
    "ClusterThread": "ClusterThread",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: the command line and the packages below should not pay for it.
    if name in _CLASSES:
        from ottla.testing import embedded

        return getattr(embedded, _CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
