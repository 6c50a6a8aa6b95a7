"""What every part of a storm agrees on."""

TOPIC = "storm"
GROUP = "storm"
# What is written in transactions, and the groups whose offsets are committed in them.
OUTPUT = "storm-output"
# So long that a transaction comes to its end on a machine that has much else to do.
TRANSACTION_TIMEOUT_MS = 30_000
PARTITIONS = 6
REPLICATION_FACTOR = 3
MIN_IN_SYNC = 2
SESSION_TIMEOUT_MS = 3000
# How long aiokafka waits for an answer: a machine that has vanished does not close its connections.
REQUEST_TIMEOUT_MS = 15_000
# librdkafka joins no group before it knows the topic, which the first broker it asks may not.
METADATA_REFRESH_MS = 3000


def broker_settings(brokers: int) -> dict[str, str]:
    """Quick failure detection and small segments; no compaction, which would make replicas differ where they may."""
    factor = min(brokers, REPLICATION_FACTOR)
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.enable": "false",
        "offsets.topic.num.partitions": 5,
        "offsets.topic.replication.factor": factor,
        "default.replication.factor": factor,
        "min.insync.replicas": min(factor, MIN_IN_SYNC),
        "auto.create.topics.enable": "false",
        "transaction.state.log.num.partitions": 5,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min(factor, MIN_IN_SYNC),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2000,
    }
    if brokers > 1:
        settings |= {
            "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
            "broker.heartbeat.interval.ms": SESSION_TIMEOUT_MS // 6,
            "replica.lag.time.max.ms": 4000,
            "leader.imbalance.check.interval.seconds": 10,
        }
    return {key: str(value) for key, value in settings.items()}
