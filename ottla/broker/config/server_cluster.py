"""Server properties of a broker's life in its cluster: session, shutdown, and what it does as controller."""

from ottla.broker.config.options import boolean, integer, long


class ClusterOptions:
    broker_session_timeout_ms = integer(
        "broker.session.timeout.ms",
        9000,
        "A broker whose lease was not renewed for this long counts as dead; other replicas lead then.",
        at_least=1,
    )
    broker_heartbeat_interval_ms = integer(
        "broker.heartbeat.interval.ms",
        2000,
        "How often a broker renews its lease in the metadata store. Never less often than three times per session "
        "timeout.",
        at_least=1,
    )
    initial_broker_registration_timeout_ms = integer(
        "initial.broker.registration.timeout.ms",
        60000,
        "How long a starting broker tries to reach its metadata store.",
        at_least=0,
    )
    controlled_shutdown_enable = boolean(
        "controlled.shutdown.enable", True, "Whether a broker that stops lets others take over what it leads first."
    )
    controlled_shutdown_max_retries = integer(
        "controlled.shutdown.max.retries",
        3,
        "How many times controlled.shutdown.retry.backoff.ms a broker that stops waits until it leads nothing.",
        at_least=0,
    )
    controlled_shutdown_retry_backoff_ms = long(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        "With controlled.shutdown.max.retries, how long a broker that stops waits until it leads nothing.",
        at_least=0,
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether the controller gives leadership back to the first replica of a partition when that is in sync.",
    )
    leader_imbalance_check_interval_seconds = long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller looks for partitions that are not led by their first replica.",
        at_least=1,
    )
