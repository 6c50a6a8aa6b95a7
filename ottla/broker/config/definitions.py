"""The table of server properties, and of topic configs with the server properties that are their defaults.

What stands here works; a property of Kafka's that has no effect on this broker is refused (`refused.py`), not listed.
"""

from typing import NamedTuple

from ottla.broker.config.options import (
    LONG_MAX,
    Option,
    always_false,
    boolean,
    choice,
    choices,
    fraction,
    integer,
    level,
    long,
    options_of,
    throttled_replicas,
)
from ottla.broker.config.server_admin import AdminOptions
from ottla.broker.config.server_cluster import ClusterOptions, EtcdOptions, ReplicationOptions, VerificationOptions
from ottla.broker.config.server_group import EventOptions, GroupOptions, OffsetsOptions
from ottla.broker.config.server_log import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    NO_PREALLOCATION,
    TIMESTAMP_TYPES,
    CleanerOptions,
    LogOptions,
    MessageOptions,
    TopicCreationOptions,
)
from ottla.broker.config.server_network import ListenerOptions, NetworkOptions
from ottla.broker.config.server_oauth import OAuthOptions
from ottla.broker.config.server_security import SecurityOptions
from ottla.broker.config.server_tls import TlsOptions
from ottla.broker.config.server_transaction import TransactionOptions

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


class ServerOptions(
    ListenerOptions,
    NetworkOptions,
    SecurityOptions,
    TlsOptions,
    OAuthOptions,
    ClusterOptions,
    EtcdOptions,
    ReplicationOptions,
    GroupOptions,
    OffsetsOptions,
    TransactionOptions,
    CleanerOptions,
    MessageOptions,
    LogOptions,
    TopicCreationOptions,
    EventOptions,
    AdminOptions,
    VerificationOptions,
):
    """All server properties."""


class TopicOptions:
    """All topic configs. A default here is Kafka's and is used only where no server property stands behind it."""

    cleanup_policy = choices(
        "cleanup.policy",
        ("delete",),
        CLEANUP_POLICIES,
        "Whether old segments are deleted, or compacted to the last record of each key, or both. With an empty "
        "list they are retained forever.",
        may_be_empty=True,
    )
    compression_type = choice(
        "compression.type",
        "producer",
        COMPRESSION_TYPES,
        "Compression of batches on disk; 'producer' keeps the compression of the producer.",
    )
    compression_gzip_level = level(
        "compression.gzip.level",
        -1,
        "Level of gzip, where compression.type is gzip; -1 for its own default.",
        at_least=1,
        at_most=9,
    )
    compression_lz4_level = level(
        "compression.lz4.level",
        9,
        "Level of lz4, where compression.type is lz4; 9 for its own default.",
        at_least=1,
        at_most=17,
    )
    compression_zstd_level = level(
        "compression.zstd.level",
        3,
        "Level of zstd, where compression.type is zstd.",
        at_least=-131072,
        at_most=22,
    )
    delete_retention_ms = long(
        "delete.retention.ms", 86400000, "How long compaction retains tombstones, in milliseconds.", at_least=0
    )
    file_delete_delay_ms = long(
        "file.delete.delay.ms",
        60000,
        "How long the files of a deleted segment remain on disk, in milliseconds.",
        at_least=0,
    )
    flush_messages = long(
        "flush.messages",
        LONG_MAX,
        "Number of records after which the log is synced to disk; 1 syncs before each acknowledgement.",
        at_least=1,
    )
    flush_ms = long(
        "flush.ms", LONG_MAX, "Maximum time that a record remains unsynced to disk, in milliseconds.", at_least=0
    )
    index_interval_bytes = integer(
        "index.interval.bytes", 4096, "Bytes of records between two index entries.", at_least=0
    )
    max_compaction_lag_ms = long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "Maximum time that a record remains uncompacted, in milliseconds.",
        at_least=1,
    )
    max_message_bytes = integer(
        "max.message.bytes", 1048588, "Maximum size of a record batch after compression, in bytes.", at_least=0
    )
    message_timestamp_after_max_ms = long(
        "message.timestamp.after.max.ms",
        3600000,
        "Maximum time by which a record's timestamp may be later than the broker's clock, in milliseconds.",
        at_least=0,
    )
    message_timestamp_before_max_ms = long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "Maximum time by which a record's timestamp may be earlier than the broker's clock, in milliseconds.",
        at_least=0,
    )
    message_timestamp_type = choice(
        "message.timestamp.type",
        "CreateTime",
        TIMESTAMP_TYPES,
        "Whether a record's timestamp is the one of its producer or the time of its append.",
    )
    min_cleanable_dirty_ratio = fraction(
        "min.cleanable.dirty.ratio",
        0.5,
        "Minimum ratio of uncompacted bytes to all bytes of the log at which it is compacted again.",
    )
    min_compaction_lag_ms = long(
        "min.compaction.lag.ms", 0, "Minimum time that a record remains uncompacted, in milliseconds.", at_least=0
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        "Minimum number of in-sync replicas for acks=all; with fewer, produce requests are refused.",
        at_least=1,
    )
    preallocate = always_false(
        "preallocate",
        "Whether a new segment file is allocated on disk at its full size. Only false is supported.",
        why=NO_PREALLOCATION,
    )
    retention_bytes = long(
        "retention.bytes",
        -1,
        "Size of a partition above which its oldest segments are deleted, in bytes; -1 for no limit.",
    )
    retention_ms = long(
        "retention.ms", 604800000, "How long records are retained, in milliseconds; -1 for no limit.", at_least=-1
    )
    segment_bytes = integer(
        "segment.bytes", 1073741824, "Size at which the log rolls to a new segment, in bytes.", at_least=14
    )
    segment_index_bytes = integer(
        "segment.index.bytes",
        10485760,
        "Maximum size of an index, in bytes. A segment whose index is full is rolled.",
        at_least=4,
    )
    segment_jitter_ms = long(
        "segment.jitter.ms",
        0,
        "Maximum random time by which the log rolls earlier than its age requires, in milliseconds.",
        at_least=0,
    )
    segment_ms = long(
        "segment.ms", 604800000, "Age at which the log rolls to a new segment, in milliseconds.", at_least=1
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that may lack acknowledged records can become leader.",
    )


class StoredTopicOptions:
    """Topic configs that no log obeys: those of replication quotas, and those of remote storage, which are stored and
    described for the tools that set them, and have no effect."""

    follower_throttled_replicas = throttled_replicas("follower.replication.throttled.replicas")
    leader_throttled_replicas = throttled_replicas("leader.replication.throttled.replicas")
    local_retention_bytes = long(
        "local.retention.bytes", -2, "Stands for retention.bytes: there is no remote storage.", at_least=-2
    )
    local_retention_ms = long(
        "local.retention.ms", -2, "Stands for retention.ms: there is no remote storage.", at_least=-2
    )
    remote_log_copy_disable = boolean("remote.log.copy.disable", False, "Has no effect: there is no remote storage.")
    remote_log_delete_on_disable = boolean(
        "remote.log.delete.on.disable", False, "Has no effect: there is no remote storage."
    )
    remote_storage_enable = always_false(
        "remote.storage.enable",
        "Whether old segments go to remote storage. Only false is supported.",
        why="there is no remote storage",
    )


class Synonym(NamedTuple):
    """A server property behind a topic config; its value times `scale` is in the topic config's unit."""

    server_name: str
    scale: int = 1

    def option(self) -> Option[object]:
        return SERVER_OPTIONS[self.server_name]


SERVER_OPTIONS = options_of(ServerOptions)
TOPIC_OPTIONS = options_of(TopicOptions)
STORED_TOPIC_OPTIONS = options_of(StoredTopicOptions)
ALL_TOPIC_OPTIONS = TOPIC_OPTIONS | STORED_TOPIC_OPTIONS


def _synonyms() -> dict[str, tuple[Synonym, ...]]:
    names = {
        "cleanup.policy": "log.cleanup.policy",
        "compression.type": "compression.type",
        "compression.gzip.level": "compression.gzip.level",
        "compression.lz4.level": "compression.lz4.level",
        "compression.zstd.level": "compression.zstd.level",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "flush.messages": "log.flush.interval.messages",
        "flush.ms": "log.flush.interval.ms",
        "index.interval.bytes": "log.index.interval.bytes",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas": "min.insync.replicas",
        "preallocate": "log.preallocate",
        "retention.bytes": "log.retention.bytes",
        "segment.bytes": "log.segment.bytes",
        "segment.index.bytes": "log.index.size.max.bytes",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }
    behind: dict[str, tuple[Synonym, ...]] = {topic: (Synonym(server),) for topic, server in names.items()}
    behind["retention.ms"] = (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    )
    behind["segment.ms"] = (
        Synonym("log.roll.ms"),
        Synonym("log.roll.hours", _HOUR_MS),
    )
    behind["segment.jitter.ms"] = (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    )
    return behind | dict.fromkeys(STORED_TOPIC_OPTIONS, ())


# The server properties behind each topic config, the first that has a value wins.
SYNONYMS = _synonyms()
