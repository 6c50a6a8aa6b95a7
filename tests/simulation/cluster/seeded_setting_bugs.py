"""Seeded bugs of brokers that do not obey settings which were altered in flight (I-39).

Each is a function that is handed pytest's monkeypatch, as in `seeded_bugs.py`. `docs/seeded-bugs.md` lists them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.config import topic
from ottla.broker.config.alter import Operation
from ottla.broker.handlers import incremental_alter_configs
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.replication.partition import Partition
from ottla.storage.append_queue import AppendQueue
from ottla.storage.local_log import LocalLog
from ottla.storage.log_config import LogConfig

Patch = Any


def asks_for_the_minimum_of_its_election(patch: Patch) -> None:
    """A leader keeps the `min.insync.replicas` that it had when its term began."""
    of_terms: dict[tuple[int, int], int] = {}

    def min_isr(self: Partition) -> int:
        now = self.log.config.min_insync_replicas
        return min(of_terms.setdefault((id(self), self.leader_epoch), now), len(self.replicas))

    patch.setattr(Partition, "min_isr", property(min_isr))


def commits_below_the_minimum(patch: Patch) -> None:
    """Records are refused and answered by it, and the high watermark rises without it."""
    rise = Partition.maybe_raise_high_watermark

    def rise_alone(self: Partition, now_ms: int) -> bool:
        local, config = self.log._local, self.log.config  # type: ignore[attr-defined]
        local.config = config._replace(min_insync_replicas=1)
        try:
            return rise(self, now_ms)
        finally:
            local.config = config

    patch.setattr(Partition, "maybe_raise_high_watermark", rise_alone)


def keeps_its_cleanup_policy(patch: Patch) -> None:
    """A log has the policy with which it was opened."""
    configure = LocalLog.configure

    def keep(self: LocalLog, config: LogConfig) -> None:
        before: LogConfig = getattr(self, "config", config)
        configure(self, config._replace(cleanup_policy=before.cleanup_policy))

    patch.setattr(LocalLog, "configure", keep)


def ignores_the_default_size_of_batches(patch: Patch) -> None:
    """`message.max.bytes` is no default of `max.message.bytes`."""
    made = topic._log_config

    def make(overrides: Mapping[str, str], server: Any) -> LogConfig:
        config = made(overrides, server)
        has_own = "max.message.bytes" in overrides
        return config if has_own else config._replace(max_message_bytes=LogConfig().max_message_bytes)

    patch.setattr(topic, "_log_config", make)


def validates_as_when_opened(patch: Patch) -> None:
    """The log's config is another one, and its records are validated by the one that it was opened with."""
    configure = AppendQueue.configure
    patch.setattr(AppendQueue, "configure", lambda self: None if hasattr(self, "_validation") else configure(self))


def deletes_no_setting(patch: Patch) -> None:
    """The answer says that it is gone."""
    alter = incremental_alter_configs.altered

    def keep(current: Any, alterations: Any, *rest: Any) -> dict[str, str]:
        return alter(current, [each for each in alterations if each.operation != Operation.DELETE], *rest)

    patch.setattr(incremental_alter_configs, "altered", keep)


def configures_one_replica_of_a_topic(patch: Patch) -> None:
    """Those of other partitions go on as before."""
    configure = ReplicaManager.configure

    def configure_one(self: ReplicaManager, name: str, config: LogConfig) -> None:
        of_topic = self._partitions.get(name, {})
        others = {index: partition for index, partition in of_topic.items() if index > 0}
        for index in others:
            del of_topic[index]
        configure(self, name, config)
        of_topic |= others

    patch.setattr(ReplicaManager, "configure", configure_one)


SEEDED_SETTING_BUGS: dict[str, Callable[[Patch], None]] = {
    "asks for the minimum of its election": asks_for_the_minimum_of_its_election,
    "commits below the minimum": commits_below_the_minimum,
    "keeps its cleanup policy": keeps_its_cleanup_policy,
    "ignores the default size of batches": ignores_the_default_size_of_batches,
    "validates as when opened": validates_as_when_opened,
    "deletes no setting": deletes_no_setting,
    "configures one replica of a topic": configures_one_replica_of_a_topic,
}
