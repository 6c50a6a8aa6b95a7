"""A broker that speaks Kafka's wire protocol.

`Broker` and `BrokerThread` put one into a program of yours, `Cluster` and `ClusterThread` several; `ottla serve` runs
them by themselves. They raise `ConfigError` for a wrong option, `StartError` when they cannot start, and
`NotRunningError` for what needs a broker that runs; each is one sentence. `Faults` are rules by which requests fail,
`RuleError` refuses one that is wrong, and `HitsMissing` is raised where one was waited for in vain.
"""

# What `typing` has by this name: `ottla health` runs every few seconds, and does without that import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ottla.broker.config.options import ConfigError
    from ottla.broker.runtime import StartError
    from ottla.testing.embedded import BrokerThread, ClusterThread, NotRunningError
    from ottla.testing.embedded import EmbeddedBroker as Broker
    from ottla.testing.embedded import EmbeddedCluster as Cluster
    from ottla.testing.faults.faults import Fault, Faults, HitsMissing
    from ottla.testing.faults.rule_values import RuleError

    __version__: str

__all__ = [
    "Broker",
    "BrokerThread",
    "Cluster",
    "ClusterThread",
    "ConfigError",
    "Fault",
    "Faults",
    "HitsMissing",
    "NotRunningError",
    "RuleError",
    "StartError",
    "__version__",
]

_EMBEDDED = {
    "Broker": "EmbeddedBroker",
    "BrokerThread": "BrokerThread",
    "Cluster": "EmbeddedCluster",
    "ClusterThread": "ClusterThread",
    "ConfigError": "ConfigError",
    "NotRunningError": "NotRunningError",
    "StartError": "StartError",
}
_FAULTS = {"Fault", "Faults", "HitsMissing", "RuleError"}


def __getattr__(name: str) -> object:
    # Imported when asked for: the command line and the packages below should not pay for it.
    if name in _EMBEDDED:
        from ottla.testing import embedded

        return getattr(embedded, _EMBEDDED[name])
    if name in _FAULTS:
        from ottla.testing import faults

        return getattr(faults, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("ottla")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
