"""Server properties of consumer groups and their offsets."""

from ottla.broker.config.options import INT_MAX, integer, long


class GroupOptions:
    group_min_session_timeout_ms = integer(
        "group.min.session.timeout.ms", 6000, "The shortest session timeout a member may ask for.", at_least=1
    )
    group_max_session_timeout_ms = integer(
        "group.max.session.timeout.ms", 1800000, "The longest session timeout a member may ask for.", at_least=1
    )
    group_initial_rebalance_delay_ms = integer(
        "group.initial.rebalance.delay.ms",
        3000,
        "How long the first rebalance of an empty group waits for further members. Every new member prolongs it.",
        at_least=0,
    )
    group_max_size = integer("group.max.size", INT_MAX, "The most members a group may have.", at_least=1)


class OffsetsOptions:
    offset_metadata_max_bytes = integer(
        "offset.metadata.max.bytes", 4096, "Length of the longest text that may go with a committed offset.", at_least=0
    )
    offsets_load_buffer_size = integer(
        "offsets.load.buffer.size",
        5242880,
        "The most bytes read at a time when groups and offsets are loaded. "
        "Never more than 256 KiB, so that other clients do not wait for it.",
        at_least=1,
    )
    offsets_retention_minutes = integer(
        "offsets.retention.minutes",
        10080,
        "How long offsets outlive the group's last member, or their own commit when there never was a member.",
        at_least=1,
    )
    offsets_retention_check_interval_ms = long(
        "offsets.retention.check.interval.ms", 600000, "How often offsets are looked at for expiry.", at_least=1
    )
    offsets_commit_timeout_ms = integer(
        "offsets.commit.timeout.ms",
        5000,
        "The longest an offset commit waits for the replicas of its partition.",
        at_least=1,
    )
    offsets_topic_num_partitions = integer(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets. Fixed once the topic exists: groups are found by it.",
        at_least=1,
    )
    offsets_topic_replication_factor = integer(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets. While it is not set, no more than there are brokers, so that one works as it "
        "is; a cluster that comes up bit by bit should set it: groups then wait until there are as many.",
        at_least=1,
        at_most=32767,
    )
    offsets_topic_segment_bytes = integer(
        "offsets.topic.segment.bytes",
        104857600,
        "Segment size of __consumer_offsets. Smaller is compacted and loaded sooner.",
        at_least=14,
    )
    offsets_topic_compression_codec = integer(
        "offsets.topic.compression.codec",
        0,
        "How the batches of __consumer_offsets are compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
    )
