"""Settings of topics that are altered in flight: which there are, and which value is in force by what is committed.

A topic's own config goes first, then the cluster-wide default (a property of entity ""), then the server properties.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.cluster.encoding import ALL_BROKERS, BROKER_CONFIGS, parsed
from ottla.cluster.store import Changes, Snapshot

Configs = Mapping[str, str]
DEFAULTS_KEY = f"{BROKER_CONFIGS}{ALL_BROKERS}"


def _policies(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


class Setting(NamedTuple):
    """`property`: the server property that is the default. `attribute`: of the log's config. `kafkas`: the value
    where none is given."""

    name: str
    property: str
    attribute: str
    kafkas: str
    parse: Callable[[str], Any] = int


SETTINGS = {
    each.name: each
    for each in (
        Setting("cleanup.policy", "log.cleanup.policy", "cleanup_policy", "delete", _policies),
        Setting("compression.type", "compression.type", "compression_type", "producer", str),
        Setting("delete.retention.ms", "log.cleaner.delete.retention.ms", "delete_retention_ms", "86400000"),
        Setting("max.message.bytes", "message.max.bytes", "max_message_bytes", "1048588"),
        Setting(
            "message.timestamp.type", "log.message.timestamp.type", "message_timestamp_type", "CreateTime", parse=str
        ),
        Setting("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "min_compaction_lag_ms", "0"),
        Setting("min.insync.replicas", "min.insync.replicas", "min_insync_replicas", "1"),
        Setting("retention.bytes", "log.retention.bytes", "retention_bytes", "-1"),
        Setting("retention.ms", "log.retention.ms", "retention_ms", "604800000"),
        Setting("segment.bytes", "log.segment.bytes", "segment_bytes", "1073741824"),
        Setting(
            "unclean.leader.election.enable",
            "unclean.leader.election.enable",
            "unclean_leader_election_enable",
            "false",
            lambda text: text == "true",
        ),
    )
}


def text_in_force(setting: Setting, own: Configs, defaults: Configs, static: Configs) -> str:
    if setting.name in own:
        return own[setting.name]
    return defaults.get(setting.property, static.get(setting.property, setting.kafkas))


def in_force(setting: Setting, own: Configs, defaults: Configs, static: Configs) -> Any:
    """As the log's config has it."""
    return setting.parse(text_in_force(setting, own, defaults, static))


def defaults_after(before: Configs, event: Snapshot | Changes) -> Configs:
    """The cluster-wide defaults after what the metadata store has said."""
    puts = event.entries if isinstance(event, Snapshot) else event.puts
    for entry in puts:
        if entry.key == DEFAULTS_KEY:
            found: Configs = parsed(entry)
            return found
    is_gone = isinstance(event, Snapshot) or DEFAULTS_KEY in event.deletes
    return {} if is_gone else before
