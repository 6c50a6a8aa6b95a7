"""Server properties of the events that the broker publishes (docs/events.md). Ottla's own, not Kafka's."""

from ottla.broker.config.options import Update, boolean, integer, long, text_option


def _prefixes(text: str) -> str:
    return ",".join(part.strip() for part in text.split(",") if part.strip())


class EventOptions:
    ottla_events_enable = boolean(
        "ottla.events.enable",
        False,
        "Whether what happens to groups and partitions is published to the topic ottla.events (docs/events.md).",
    )
    ottla_events_num_partitions = integer(
        "ottla.events.num.partitions", 3, "Partitions of ottla.events when it is created.", at_least=1
    )
    ottla_events_replication_factor = integer(
        "ottla.events.replication.factor",
        3,
        "Replicas of ottla.events when it is created, or the number of brokers when that is smaller.",
        at_least=1,
        at_most=32767,
    )
    ottla_events_retention_ms = long(
        "ottla.events.retention.ms",
        604800000,
        "retention.ms of ottla.events when it is created; -1 keeps events for ever.",
        at_least=-1,
    )
    ottla_events_flush_interval_ms = integer(
        "ottla.events.flush.interval.ms", 100, "How long an event waits for others to be written with.", at_least=1
    )
    ottla_events_sample_interval_ms = integer(
        "ottla.events.sample.interval.ms",
        10000,
        "How often the lag of groups and of followers is sampled, and commits are summed up.",
        at_least=100,
    )
    ottla_events_buffer_max = integer(
        "ottla.events.buffer.max",
        10000,
        "Events that may wait to be written. Further ones are dropped and counted.",
        at_least=1,
    )
    ottla_events_ignored_groups = text_option(
        "ottla.events.ignored.groups",
        "spark-kafka-,ottla-pipeline",
        "There are no events about groups whose id begins so: those of programs that read the events.",
        parse=_prefixes,
        bounds="a list of prefixes",
        update=Update.READ_ONLY,
    )
