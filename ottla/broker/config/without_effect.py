"""Kafka's properties that mean nothing here and stand in many files, as in the sample `server.properties` of Kafka.

They are accepted, and one warning lists them. Of a KRaft node's listeners, those of the controller go as well.
"""

from collections.abc import Iterator, Mapping

_NAMES = {
    "background.threads",
    "broker.id",
    "early.start.listeners",
    "group.coordinator.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.dir",
    "log.dirs",
    "log.flush.scheduler.interval.ms",
    "node.id",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "process.roles",
    "queued.max.request.bytes",
    "queued.max.requests",
}
_PREFIXES = ("controller.", "metadata.log.", "share.coordinator.")
_CONTROLLER_LISTENERS = "controller.listener.names"
_LISTENERS = ("listeners", "advertised.listeners")
_PROTOCOLS = "listener.security.protocol.map"


def without_idle_properties(static: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The properties that have an effect, and the names of the others."""
    idle = tuple(name for name in static if name in _NAMES or name.startswith(_PREFIXES))
    kept = {name: text for name, text in static.items() if name not in idle}
    controllers = {name.strip() for name in static.get(_CONTROLLER_LISTENERS, "").split(",") if name.strip()}
    if controllers:
        for name in _LISTENERS:
            if name in kept:
                kept[name] = ",".join(_others(kept[name], controllers, "://"))
        if _PROTOCOLS in kept and "listeners" in kept:
            kept[_PROTOCOLS] = ",".join(_of_listeners(kept[_PROTOCOLS], kept["listeners"]))
    return kept, idle


def _others(text: str, names: set[str], separator: str) -> Iterator[str]:
    return (part.strip() for part in text.split(",") if part.strip().partition(separator)[0] not in names)


def _of_listeners(protocols: str, listeners: str) -> Iterator[str]:
    """Kafka's sample maps every protocol that there is, also for listeners that there are not."""
    names = {part.strip().partition("://")[0] for part in listeners.split(",")}
    return (part.strip() for part in protocols.split(",") if part.strip().partition(":")[0] in names)


def idle_properties() -> list[str]:
    """Every name; a trailing `*` stands for all names with that prefix."""
    return sorted([*_NAMES, *(f"{prefix}*" for prefix in _PREFIXES)])
