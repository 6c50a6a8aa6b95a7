"""Server properties of replication: how followers copy, and when they count as in sync."""

from ottla.broker.config.options import Kind, Option, Update, integer, long

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _selector(text: str) -> str | None:
    if text not in ("", RACK_AWARE_SELECTOR):
        raise ValueError(f"expected {RACK_AWARE_SELECTOR}")
    return text or None


class ReplicationOptions:
    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "Connections on which partitions are copied from one leader.",
        at_least=1,
    )
    replica_lag_time_max_ms = long(
        "replica.lag.time.max.ms",
        30000,
        "A follower that has not caught up for this long leaves the ISR.",
        at_least=1,
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes",
        # Kafka's default is 1 MiB, which is one batch of a busy producer (docs/decisions/0014-bulk-replication.md).
        4194304,
        "The most bytes of one partition in a fetch of a follower. One batch is always sent whole.",
        at_least=0,
    )
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes",
        10485760,
        "The most bytes in the answer to a fetch of a follower. One batch is always sent whole.",
        at_least=0,
    )
    replica_fetch_min_bytes = integer(
        "replica.fetch.min.bytes", 1, "The bytes for which a fetch of a follower waits at its leader.", at_least=0
    )
    replica_fetch_wait_max_ms = integer(
        "replica.fetch.wait.max.ms", 500, "The longest a fetch of a follower waits at its leader.", at_least=0
    )
    replica_fetch_backoff_ms = integer(
        "replica.fetch.backoff.ms",
        1000,
        "The longest a follower rests after an error before it tries again.",
        at_least=0,
    )
    replica_socket_timeout_ms = integer(
        "replica.socket.timeout.ms",
        30000,
        "How long a follower waits for its leader's answer. At least replica.fetch.wait.max.ms.",
        at_least=1,
    )
    replica_socket_receive_buffer_bytes = integer(
        "replica.socket.receive.buffer.bytes",
        65536,
        "Receive buffer of a follower's socket (SO_RCVBUF). Unless this is set, and with -1, the operating system "
        "decides.",
        at_least=-1,
    )
    replica_selector_class = Option[str | None](
        "replica.selector.class",
        Kind.STRING,
        None,
        "When set, a consumer that names its rack is sent to an in-sync replica there (KIP-392). "
        "The class is not loaded: the name stands for what it does in Kafka.",
        parse=_selector,
        bounds=RACK_AWARE_SELECTOR,
        update=Update.READ_ONLY,
    )
