"""AlterConfigs and IncrementalAlterConfigs: configs of a topic, properties of this broker or of all, committed to the
metadata store. They take effect when the image shows them (`dynamic_configs`)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ottla.broker.config.options import ConfigError, ConfigScopeError
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.topic import check_topic_configs
from ottla.broker.logging import LazyLog
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.cluster.encoding import ALL_BROKERS
from ottla.cluster.store import Transaction
from ottla.cluster.topic_changes import replace_broker_configs, replace_topics
from ottla.cluster.topics import check_topic_name
from ottla.protocol.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition

NewConfigs = Callable[[], Mapping[str, str]]
"""What is to be set, given what is set; raises KafkaError where that cannot be said."""


class ConfigAdminManager:
    """Its coroutines raise the KafkaError of the answer."""

    def __init__(
        self, runtime: Runtime, metadata: ClusterMetadata, check_broker: Callable[[ServerConfig], None]
    ) -> None:
        """`check_broker` raises ConfigError for a configuration with which this broker could not go on."""
        self._runtime = runtime
        self._check_broker = check_broker
        self._metadata = metadata

    async def alter_topic(self, name: str, configs: NewConfigs, *, validate_only: bool = False) -> None:
        """Replace a topic's own configs."""
        change = _ConfigChange()
        await self._alter(partial(self._plan_topic, change, name, configs), validate_only=validate_only)
        if not validate_only and change.is_one:
            self._log.info("topic configs altered", topic=name, set=change.set, unset=change.unset)

    async def alter_broker(self, configs: NewConfigs, *, of_all_brokers: bool, validate_only: bool = False) -> None:
        """Replace the properties set at run time for this broker, or for all."""
        change = _ConfigChange()
        await self._alter(partial(self._plan_broker, change, configs, of_all_brokers), validate_only=validate_only)
        if not validate_only and change.is_one:
            whose = "all brokers" if of_all_brokers else f"broker {self._runtime.node_id}"
            self._log.info("broker configs altered", of=whose, set=change.set, unset=change.unset)

    async def _alter(self, plan: Callable[[], Transaction], *, validate_only: bool) -> None:
        if validate_only:
            plan()
        else:
            await self._metadata.commit_planned(plan)

    @property
    def _log(self) -> LazyLog:
        return self._runtime.log.metadata

    def _plan_topic(self, change: "_ConfigChange", name: str, configs: NewConfigs) -> Transaction:
        image = self._metadata.image
        topic = image.topic(name)
        # As in Kafka: what is asked for, the name, the configs, and at last whether there is such a topic.
        wanted = configs()
        if not name:
            raise InvalidRequest("configs are a topic's own: there are none of all topics")
        check_topic_name(name)
        checked = checked_configs(wanted, self._runtime.config)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic '{name}' does not exist")
        change.before, change.after = topic.configs, checked
        return replace_topics(image, {name: replace(topic, configs=checked)})

    def _plan_broker(self, change: "_ConfigChange", configs: NewConfigs, of_all_brokers: bool) -> Transaction:
        owner = ALL_BROKERS if of_all_brokers else str(self._runtime.node_id)
        try:
            config = self._runtime.config
            checked = config.check_dynamic(configs(), of_all_brokers=of_all_brokers)
            self._check_broker(config.with_dynamic(checked, of_all_brokers=of_all_brokers))
        except ConfigScopeError as error:
            raise InvalidConfig(str(error)) from None
        except ConfigError as error:
            raise InvalidRequest(str(error)) from None
        change.before, change.after = self._metadata.configs.values_of(owner), checked
        return replace_broker_configs(owner, checked, self._metadata.configs.revision_of(owner))


class _ConfigChange:
    """Of configs, for the log: as they were planned last, for another broker may be quicker."""

    def __init__(self) -> None:
        self.before: Mapping[str, str] = {}
        self.after: Mapping[str, str] = {}

    @property
    def is_one(self) -> bool:
        return self.before != self.after

    @property
    def set(self) -> dict[str, str] | None:
        """None where nothing is: a line has no empty fields."""
        return {name: value for name, value in self.after.items() if self.before.get(name) != value} or None

    @property
    def unset(self) -> list[str] | None:
        return sorted(self.before.keys() - self.after.keys()) or None


def checked_configs(configs: Mapping[str, str | None], config: ServerConfig) -> dict[str, str]:
    """A topic's own configs. Raises InvalidConfig."""
    try:
        return check_topic_configs(configs, config)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from None
