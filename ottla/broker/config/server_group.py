"""Server properties of consumer groups, their offsets, and the events about them (docs/events.md; Ottla's own)."""

from ottla.broker.config.options import INT_MAX, Update, boolean, integer, long, text_option


def _prefixes(text: str) -> str:
    return ",".join(part.strip() for part in text.split(",") if part.strip())


class GroupOptions:
    group_min_session_timeout_ms = integer(
        "group.min.session.timeout.ms", 6000, "Minimum session timeout of a group member, in milliseconds.", at_least=1
    )
    group_max_session_timeout_ms = integer(
        "group.max.session.timeout.ms",
        1800000,
        "Maximum session timeout of a group member, in milliseconds.",
        at_least=1,
    )
    group_initial_rebalance_delay_ms = integer(
        "group.initial.rebalance.delay.ms",
        3000,
        "How long the first rebalance of an empty group waits for more members, in milliseconds. Every new member "
        "extends the wait.",
        at_least=0,
    )
    group_max_size = integer("group.max.size", INT_MAX, "Maximum number of members of a group.", at_least=1)


class OffsetsOptions:
    offset_metadata_max_bytes = integer(
        "offset.metadata.max.bytes",
        4096,
        "Maximum length of the metadata of a committed offset, in UTF-16 code units, as Kafka counts it.",
        at_least=0,
    )
    offsets_load_buffer_size = integer(
        "offsets.load.buffer.size",
        5242880,
        "Maximum number of bytes read at a time while groups and offsets are loaded. At most 256 KiB are used, so "
        "that loading does not delay other requests.",
        at_least=1,
    )
    offsets_retention_minutes = integer(
        "offsets.retention.minutes",
        10080,
        "Offsets expire this many minutes after the last member left the group, or after their commit if the "
        "group never had a member.",
        at_least=1,
    )
    offsets_retention_check_interval_ms = long(
        "offsets.retention.check.interval.ms",
        600000,
        "Interval between checks for expired offsets, in milliseconds.",
        at_least=1,
    )
    offsets_commit_timeout_ms = integer(
        "offsets.commit.timeout.ms",
        5000,
        "Maximum time that an offset commit waits for the replicas of its partition, in milliseconds.",
        at_least=1,
    )
    offsets_topic_num_partitions = integer(
        "offsets.topic.num.partitions",
        50,
        "Number of partitions of __consumer_offsets. It is fixed once the topic exists, because it determines the "
        "coordinator of each group.",
        at_least=1,
    )
    offsets_topic_replication_factor = integer(
        "offsets.topic.replication.factor",
        3,
        "Replication factor of __consumer_offsets when it is created. If this is not set, it is at most the "
        "number of brokers, so that a single broker works. Set it if the brokers of a cluster start one after "
        "another: groups then wait until there are enough brokers.",
        at_least=1,
        at_most=32767,
    )
    offsets_topic_segment_bytes = integer(
        "offsets.topic.segment.bytes",
        104857600,
        "Segment size of __consumer_offsets, in bytes. Smaller segments are compacted and loaded sooner.",
        at_least=14,
    )
    offsets_topic_compression_codec = integer(
        "offsets.topic.compression.codec",
        0,
        "Compression of the batches in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
    )


class EventOptions:
    ottla_events_enable = boolean(
        "ottla.events.enable",
        False,
        "Whether the broker publishes events about groups and partitions to the topic ottla.events (docs/events.md).",
    )
    ottla_events_num_partitions = integer(
        "ottla.events.num.partitions", 3, "Number of partitions of ottla.events when it is created.", at_least=1
    )
    ottla_events_replication_factor = integer(
        "ottla.events.replication.factor",
        3,
        "Replication factor of ottla.events when it is created; at most the number of brokers.",
        at_least=1,
        at_most=32767,
    )
    ottla_events_retention_ms = long(
        "ottla.events.retention.ms",
        604800000,
        "retention.ms of ottla.events when it is created; -1 keeps events forever.",
        at_least=-1,
    )
    ottla_events_flush_interval_ms = integer(
        "ottla.events.flush.interval.ms",
        100,
        "Maximum time that an event waits to be written together with others, in milliseconds.",
        at_least=1,
    )
    ottla_events_sample_interval_ms = integer(
        "ottla.events.sample.interval.ms",
        10000,
        "Interval between samples of the lag of groups and followers, and between summaries of commits, in "
        "milliseconds.",
        at_least=100,
    )
    ottla_events_buffer_max = integer(
        "ottla.events.buffer.max",
        10000,
        "Maximum number of events that wait to be written. Further events are dropped and counted.",
        at_least=1,
    )
    ottla_events_ignored_groups = text_option(
        "ottla.events.ignored.groups",
        "spark-kafka-,ottla-pipeline",
        "Prefixes of the ids of groups about which no events are published. The default has the groups of programs "
        "that read the events.",
        parse=_prefixes,
        bounds="a list of prefixes",
        update=Update.READ_ONLY,
    )
