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
    level,
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
    num_partitions = integer("num.partitions", 1, "Default number of partitions of a new topic.", at_least=1)
    default_replication_factor = integer(
        "default.replication.factor",
        1,
        "Default replication factor of a new topic. At most the number of brokers.",
        at_least=1,
        at_most=32767,
    )
    auto_create_topics_enable = boolean(
        "auto.create.topics.enable",
        True,
        "Whether a metadata request for an unknown topic creates the topic, if the client allows it.",
    )
    delete_topic_enable = boolean(
        "delete.topic.enable", True, "Whether topics can be deleted. Otherwise DeleteTopics requests are refused."
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit",
        2000,
        "Maximum number of partitions in one DescribeTopicPartitions response; the client continues from its cursor.",
        at_least=1,
    )


class LogOptions:
    log_segment_bytes = integer(
        "log.segment.bytes",
        1073741824,
        "Size at which a log rolls to a new segment, in bytes.",
        at_least=14,
        update=_DYNAMIC,
    )
    internal_segment_bytes_min = integer(
        "internal.segment.bytes.min",
        1048576,
        "Smallest size of a segment that may be configured, in bytes. Lower than its default for tests only.",
        at_least=1,
    )
    log_roll_ms = optional_long(
        "log.roll.ms",
        "Age at which a log rolls to a new segment, in milliseconds. If this is not set, log.roll.hours applies.",
        at_least=1,
        update=_DYNAMIC,
    )
    log_roll_hours = integer("log.roll.hours", 168, "Age at which a log rolls to a new segment, in hours.", at_least=1)
    log_roll_jitter_ms = optional_long(
        "log.roll.jitter.ms",
        "Maximum random time by which a log rolls earlier than its age requires, in milliseconds. If this is not "
        "set, log.roll.jitter.hours applies.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_roll_jitter_hours = integer(
        "log.roll.jitter.hours",
        0,
        "Maximum random time by which a log rolls earlier than its age requires, in hours.",
        at_least=0,
    )
    log_retention_ms = optional_long(
        "log.retention.ms",
        "How long records are retained, in milliseconds; -1 for no limit. If this is not set, "
        "log.retention.minutes applies.",
        at_least=1,
        update=_DYNAMIC,
        or_no_limit=True,
    )
    log_retention_minutes = optional_integer(
        "log.retention.minutes",
        "How long records are retained, in minutes; -1 for no limit. If this is not set, log.retention.hours applies.",
        at_least=1,
        or_no_limit=True,
    )
    log_retention_hours = integer(
        "log.retention.hours",
        168,
        "How long records are retained, in hours; -1 for no limit.",
        at_least=1,
        or_no_limit=True,
    )
    log_retention_bytes = long(
        "log.retention.bytes",
        -1,
        "Size of a partition above which its oldest segments are deleted, in bytes; -1 for no limit.",
        at_least=-1,
        update=_DYNAMIC,
    )
    log_retention_check_interval_ms = long(
        "log.retention.check.interval.ms",
        300000,
        "Interval between checks for segments that retention deletes, in milliseconds.",
        at_least=1,
    )
    log_cleanup_policy = choices(
        "log.cleanup.policy",
        ("delete",),
        CLEANUP_POLICIES,
        "Whether old segments are deleted, or compacted to the last record of each key, or both.",
        update=_DYNAMIC,
    )
    log_segment_delete_delay_ms = long(
        "log.segment.delete.delay.ms",
        60000,
        "How long the files of a deleted segment remain on disk for readers that still use them, in milliseconds.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_index_size_max_bytes = integer(
        "log.index.size.max.bytes",
        10485760,
        "Maximum size of an offset or time index, in bytes. A segment whose index is full is rolled.",
        at_least=4,
        update=_DYNAMIC,
    )
    log_index_interval_bytes = integer(
        "log.index.interval.bytes",
        4096,
        "Bytes of records between two index entries. A smaller interval finds offsets faster and needs more space.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_flush_interval_messages = long(
        "log.flush.interval.messages",
        LONG_MAX,
        "Number of records after which a log is synced to disk. The append that reaches it is acknowledged after "
        "the sync.",
        at_least=1,
        update=_DYNAMIC,
    )
    log_flush_interval_ms = optional_long(
        "log.flush.interval.ms",
        "Maximum time that a record remains unsynced to disk, in milliseconds. If this is not set, syncing is "
        "left to the operating system.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60000,
        "Interval between checkpoints of the recovery points of all logs, in milliseconds.",
        at_least=1,
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60000,
        "Interval between checkpoints of the log start offsets of all logs, in milliseconds.",
        at_least=1,
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "Interval between checkpoints of the high watermarks of all logs, in milliseconds.",
        at_least=1,
    )
    log_preallocate = always_false(
        "log.preallocate",
        "Whether a new segment file is allocated on disk at its full size. Only false is supported.",
        why=NO_PREALLOCATION,
        update=_DYNAMIC,
    )


class MessageOptions:
    message_max_bytes = integer(
        "message.max.bytes",
        1048588,
        "Maximum size of a record batch after compression, in bytes.",
        at_least=0,
        update=_DYNAMIC,
    )
    compression_type = choice(
        "compression.type",
        "producer",
        COMPRESSION_TYPES,
        "Compression of batches on disk; 'producer' keeps the compression of the producer.",
        update=_DYNAMIC,
    )
    compression_gzip_level = level(
        "compression.gzip.level",
        -1,
        "Level of gzip, where compression.type is gzip; -1 for its own default.",
        at_least=1,
        at_most=9,
        update=_DYNAMIC,
    )
    compression_lz4_level = level(
        "compression.lz4.level",
        9,
        "Level of lz4, where compression.type is lz4; 9 for its own default.",
        at_least=1,
        at_most=17,
        update=_DYNAMIC,
    )
    compression_zstd_level = level(
        "compression.zstd.level",
        3,
        "Level of zstd, where compression.type is zstd.",
        at_least=-131072,
        at_most=22,
        update=_DYNAMIC,
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        "Minimum number of in-sync replicas for a produce request with acks=all; with fewer it is refused.",
        at_least=1,
        # Leaders and the controller go by it together: as in Kafka with eligible leader replicas (KIP-966).
        update=Update.ONLY_CLUSTER_WIDE,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that may lack acknowledged records can become leader when no other replica is available.",
        update=_DYNAMIC,
    )
    log_message_timestamp_type = choice(
        "log.message.timestamp.type",
        "CreateTime",
        TIMESTAMP_TYPES,
        "Whether a record's timestamp is the one of its producer or the time of its append.",
        update=_DYNAMIC,
    )
    log_message_timestamp_before_max_ms = long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "Maximum time by which a record's timestamp may be earlier than the broker's clock, in milliseconds.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_message_timestamp_after_max_ms = long(
        "log.message.timestamp.after.max.ms",
        3600000,
        "Maximum time by which a record's timestamp may be later than the broker's clock, in milliseconds.",
        at_least=0,
        update=_DYNAMIC,
    )
    producer_id_expiration_ms = integer(
        "producer.id.expiration.ms",
        86400000,
        "A partition forgets the sequence numbers of an idempotent producer that has been inactive for this many "
        "milliseconds.",
        at_least=1,
        update=_DYNAMIC,
    )
    producer_id_expiration_check_interval_ms = integer(
        "producer.id.expiration.check.interval.ms",
        600000,
        "Interval between checks for producer ids that have expired, in milliseconds.",
        at_least=1,
    )


class CleanerOptions:
    log_cleaner_enable = boolean("log.cleaner.enable", True, "Whether logs with the policy 'compact' are compacted.")
    log_cleaner_backoff_ms = long(
        "log.cleaner.backoff.ms",
        15000,
        "How long the log cleaner sleeps when no log needs cleaning, in milliseconds.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_cleaner_min_cleanable_ratio = fraction(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "Minimum ratio of uncompacted bytes to all bytes of a log at which it is compacted again.",
        update=_DYNAMIC,
    )
    log_cleaner_delete_retention_ms = long(
        "log.cleaner.delete.retention.ms",
        86400000,
        "How long compaction retains tombstones, so that consumers that read from the beginning see them, in "
        "milliseconds.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_cleaner_min_compaction_lag_ms = long(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "Minimum time that a record remains uncompacted, in milliseconds.",
        at_least=0,
        update=_DYNAMIC,
    )
    log_cleaner_max_compaction_lag_ms = long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "Maximum time that a record remains uncompacted, whatever the ratio of uncompacted bytes, in milliseconds.",
        at_least=1,
        update=_DYNAMIC,
    )
