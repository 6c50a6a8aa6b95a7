"""Server properties of topics and logs. Those with a topic-level name are the defaults of topics that do not set it."""

from ottla.broker.config.options import (
    LONG_MAX,
    Update,
    always_false,
    boolean,
    choice,
    choices,
    fraction,
    integer,
    long,
    optional_integer,
    optional_long,
)

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("delete", "compact")
NO_PREALLOCATION = "segment files grow as they are written"

_DYNAMIC = Update.CLUSTER_WIDE


class TopicCreationOptions:
    num_partitions = integer(
        "num.partitions", 1, "Partitions of a topic that is created without a number of its own.", at_least=1
    )
    default_replication_factor = integer(
        "default.replication.factor",
        1,
        "Replicas of each partition of a topic that is created without a number of its own. "
        "At most the number of brokers.",
        at_least=1,
        at_most=32767,
    )
    auto_create_topics_enable = boolean(
        "auto.create.topics.enable",
        True,
        "Whether asking for the metadata of an unknown topic creates it, when the client allows that.",
    )
    delete_topic_enable = boolean(
        "delete.topic.enable", True, "Whether topics can be deleted. Otherwise DeleteTopics is refused."
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit",
        2000,
        "The most partitions one DescribeTopicPartitions response carries; the client continues from its cursor.",
        at_least=1,
    )


class LogOptions:
    log_segment_bytes = integer(
        "log.segment.bytes", 1073741824, "Size at which a log starts a new segment file.", at_least=14, update=_DYNAMIC
    )
    log_roll_ms = optional_long(
        "log.roll.ms",
        "Age at which a log starts a new segment file. When absent, log.roll.hours holds.",
        at_least=1,
        update=_DYNAMIC,
    )
    log_roll_hours = integer(
        "log.roll.hours", 168, "Age at which a log starts a new segment file, in hours.", at_least=1
    )
    log_roll_jitter_ms = optional_long(
        "log.roll.jitter.ms",
        "The most by which a roll by age is moved forward at random. When absent, log.roll.jitter.hours holds.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_roll_jitter_hours = integer(
        "log.roll.jitter.hours", 0, "The most by which a roll by age is moved forward at random, in hours.", at_least=0
    )
    log_retention_ms = optional_long(
        "log.retention.ms",
        "How long records are kept; -1 for ever. When absent, log.retention.minutes holds.",
        at_least=-1,
        update=_DYNAMIC,
    )
    log_retention_minutes = optional_integer(
        "log.retention.minutes",
        "How long records are kept, in minutes; -1 for ever. When absent, log.retention.hours holds.",
        at_least=-1,
    )
    log_retention_hours = integer(
        "log.retention.hours", 168, "How long records are kept, in hours; -1 for ever.", at_least=-1
    )
    log_retention_bytes = long(
        "log.retention.bytes",
        -1,
        "Size of a partition above which its oldest segments are deleted; -1 for no bound.",
        at_least=-1,
        update=_DYNAMIC,
    )
    log_retention_check_interval_ms = long(
        "log.retention.check.interval.ms",
        300000,
        "How often logs are looked at for segments that retention lets go.",
        at_least=1,
    )
    log_cleanup_policy = choices(
        "log.cleanup.policy",
        ("delete",),
        CLEANUP_POLICIES,
        "What happens to old segments: they are deleted, or compacted to the last record of each key, or both.",
        update=_DYNAMIC,
    )
    log_segment_delete_delay_ms = long(
        "log.segment.delete.delay.ms",
        60000,
        "How long the files of a deleted segment stay on disk for readers that still hold them.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_index_size_max_bytes = integer(
        "log.index.size.max.bytes",
        10485760,
        "Size of an offset or time index at which its segment is rolled.",
        at_least=4,
        update=_DYNAMIC,
    )
    log_index_interval_bytes = integer(
        "log.index.interval.bytes",
        4096,
        "Bytes of records between two entries of an index. Smaller finds offsets faster and takes more room.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_flush_interval_messages = long(
        "log.flush.interval.messages",
        LONG_MAX,
        "Records after which a log is synced to disk; an acknowledgement waits for the sync it is due for.",
        at_least=1,
        update=_DYNAMIC,
    )
    log_flush_interval_ms = optional_long(
        "log.flush.interval.ms",
        "The longest a record stays unsynced to disk. When absent, syncing is left to the operating system.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60000,
        "How often the recovery points of all logs are written to their checkpoint file.",
        at_least=1,
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60000,
        "How often the start offsets of all logs are written to their checkpoint file.",
        at_least=1,
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often the high watermarks of all logs are written to their checkpoint file.",
        at_least=1,
    )
    log_preallocate = always_false(
        "log.preallocate",
        "Whether a new segment file takes its full size on disk at once.",
        why=NO_PREALLOCATION,
        update=_DYNAMIC,
    )


class MessageOptions:
    message_max_bytes = integer(
        "message.max.bytes",
        1048588,
        "Size of the largest record batch that is accepted, after compression.",
        at_least=0,
        update=_DYNAMIC,
    )
    compression_type = choice(
        "compression.type",
        "producer",
        COMPRESSION_TYPES,
        "How batches are compressed on disk. 'producer' keeps what the producer sent.",
        update=_DYNAMIC,
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        "In-sync replicas without which a produce request with acks=all is refused.",
        at_least=1,
        # Leaders and the controller go by it together: as in Kafka with eligible leader replicas (KIP-966).
        update=Update.ONLY_CLUSTER_WIDE,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that may lack acknowledged records can become leader when no other is left.",
        update=_DYNAMIC,
    )
    log_message_timestamp_type = choice(
        "log.message.timestamp.type",
        "CreateTime",
        TIMESTAMP_TYPES,
        "Whether a record carries the producer's time or the time of its append.",
        update=_DYNAMIC,
    )
    log_message_timestamp_before_max_ms = long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's timestamp may lie before the broker's clock.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_message_timestamp_after_max_ms = long(
        "log.message.timestamp.after.max.ms",
        3600000,
        "How far a record's timestamp may lie after the broker's clock.",
        at_least=0,
        update=_DYNAMIC,
    )
    producer_id_expiration_ms = integer(
        "producer.id.expiration.ms",
        86400000,
        "How long a partition remembers the sequence numbers of an idempotent producer that has fallen silent.",
        at_least=1,
        update=_DYNAMIC,
    )
    producer_id_expiration_check_interval_ms = integer(
        "producer.id.expiration.check.interval.ms",
        600000,
        "How often partitions are looked at for producers to forget.",
        at_least=1,
    )


class CleanerOptions:
    log_cleaner_enable = boolean("log.cleaner.enable", True, "Whether logs with the policy 'compact' are compacted.")
    log_cleaner_backoff_ms = long(
        "log.cleaner.backoff.ms",
        15000,
        "How long the cleaner rests after a round in which it found nothing to do.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_cleaner_min_cleanable_ratio = fraction(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "Share of a log that must be uncompacted before it is compacted again.",
        update=_DYNAMIC,
    )
    log_cleaner_delete_retention_ms = long(
        "log.cleaner.delete.retention.ms",
        86400000,
        "How long compaction keeps the marks of deleted keys, so that readers from the start can see them.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_cleaner_min_compaction_lag_ms = long(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "How long a record stays as it is before it may be compacted away.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_cleaner_max_compaction_lag_ms = long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "Age at which a record becomes due for compaction whatever the share of uncompacted data.",
        at_least=1,
        update=_DYNAMIC,
    )
