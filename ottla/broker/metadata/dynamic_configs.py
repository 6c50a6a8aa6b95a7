"""The properties that were altered at run time, for one broker or for all, as the metadata store has them."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ConfigSource, ServerConfig, option_of
from ottla.broker.config.topic import log_config
from ottla.broker.runtime import Runtime
from ottla.cluster.encoding import ALL_BROKERS, BROKER_CONFIGS, parsed
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import ABSENT, Changes, Snapshot
from ottla.cluster.updates import ImageUpdate
from ottla.storage.log_config import LogConfig


class _Stored(NamedTuple):
    values: dict[str, str]
    revision: int


_NONE = _Stored({}, ABSENT)


class DynamicConfigs:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_changed = False
        self._has_warned = False
        # By broker id in digits.
        self._stored: dict[str, _Stored] = {}

    def take(self, event: Snapshot | Changes) -> None:
        """Remember what the event says of them. Raises StoreError."""
        before = self._stored
        puts = event.entries if isinstance(event, Snapshot) else event.puts
        after = {} if isinstance(event, Snapshot) else dict(before)
        for entry in puts:
            if entry.key.startswith(BROKER_CONFIGS):
                after[entry.key.removeprefix(BROKER_CONFIGS)] = _Stored(parsed(entry), entry.revision)
        if isinstance(event, Changes):
            for key in event.deletes:
                after.pop(key.removeprefix(BROKER_CONFIGS), None) if key.startswith(BROKER_CONFIGS) else None
        self._stored = after
        self._is_changed |= after != before

    def revision_of(self, owner: str) -> int:
        return self._stored.get(owner, _NONE).revision

    def values_of(self, owner: str) -> dict[str, str]:
        """What is stored for one broker, or for all."""
        return self._stored.get(owner, _NONE).values

    def apply_changes(self) -> bool:
        """Makes them the values of this broker's configuration; says whether something has changed."""
        if not self._is_changed:
            return False
        self._is_changed = False
        self._runtime.config.set_dynamic(
            of_this_broker=self._understood(str(self._runtime.node_id)), of_all_brokers=self._understood(ALL_BROKERS)
        )
        self._warn_of_idle_min_isr()
        return True

    def _understood(self, owner: str) -> dict[str, str]:
        """What is stored, but for what this version does not take: a broker of another one may have stored it. The
        others hold, as in Kafka (`DynamicBrokerConfig`)."""
        taken: dict[str, str] = {}
        for name, text in self.values_of(owner).items():
            try:
                option_of(name).parse(text)
            except ConfigError as error:
                self._runtime.log.metadata.warning(
                    "a stored property has no effect: this version does not take it", name=name, why=str(error)
                )
            else:
                taken[name] = text
        return taken

    def _warn_of_idle_min_isr(self) -> None:
        """A new cluster keeps the value of its first start, which then holds over that of later starts."""
        values = list(self._runtime.config.values_of(ServerConfig.min_insync_replicas))  # type: ignore[arg-type]
        given = next((each.value for each in values if each.source is ConfigSource.STATIC_BROKER), values[0].value)
        if not self._has_warned and given != values[0].value:
            self._has_warned = True
            self._runtime.log.metadata.warning(
                "min.insync.replicas of this start has no effect: the cluster's value holds, and can be altered",
                given=given,
                holds=values[0].value,
            )


class ConfigPublisher:
    """Gives altered configs of topics to their logs, and altered properties of the broker to all logs."""

    def __init__(
        self,
        runtime: Runtime,
        dynamic: DynamicConfigs,
        configure_topic: Callable[[str, LogConfig], None],
        broker_configured: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._dynamic = dynamic
        self._configure_topic = configure_topic
        self._broker_configured = broker_configured

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:
        # They are the defaults of every topic that has no value of its own.
        all_topics = self._dynamic.apply_changes()
        if all_topics:
            self._broker_configured()
        # By the configs that topics have of their own: most of thousands have none, and each would take 0.1 ms.
        made: dict[frozenset[tuple[str, str]], LogConfig] = {}
        for name in update.image.topics if all_topics else update.topics:
            old, new = before.topic(name), update.image.topic(name)
            if new is not None and (all_topics or (old is not None and old.configs != new.configs)):
                own = frozenset(new.configs.items())
                if own not in made:
                    made[own] = log_config(new.configs, self._runtime.config)
                self._configure_topic(name, made[own])
