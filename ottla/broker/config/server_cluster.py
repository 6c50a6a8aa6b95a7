"""Server properties of a broker in its cluster: session, shutdown, controller, the way to etcd, how followers
replicate, and what leaders ask the coordinators of transactions (KIP-890)."""

from typing import Final

from ottla.broker.config.options import (
    Kind,
    Option,
    Update,
    boolean,
    integer,
    long,
    optional_text,
    secret_option,
    text_option,
)
from ottla.broker.config.server_tls import HTTPS, host_check
from ottla.replication.replication_quota import SAMPLE_MS, SAMPLES, UNLIMITED

ETCD: Final = "ottla.metadata.etcd."
"""What the names of the properties of the way to etcd begin with."""
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _selector(text: str) -> str | None:
    if text not in ("", RACK_AWARE_SELECTOR):
        raise ValueError(f"expected {RACK_AWARE_SELECTOR}")
    return text or None


class ClusterOptions:
    broker_session_timeout_ms = integer(
        "broker.session.timeout.ms",
        9000,
        "How long a broker may go without renewing its lease before it is fenced and other replicas lead its "
        "partitions, in milliseconds.",
        at_least=1,
    )
    broker_heartbeat_interval_ms = integer(
        "broker.heartbeat.interval.ms",
        2000,
        "Interval at which a broker renews its lease in the metadata store, in milliseconds. At most a third of "
        "broker.session.timeout.ms is used.",
        at_least=1,
    )
    initial_broker_registration_timeout_ms = integer(
        "initial.broker.registration.timeout.ms",
        60000,
        "How long a starting broker tries to reach its metadata store, and waits for the end of the session of another "
        "process with its id, in milliseconds. For that it waits as long as a session lasts, at least.",
        at_least=0,
    )
    controlled_shutdown_enable = boolean(
        "controlled.shutdown.enable", True, "Whether a broker that stops moves its leaderships to other replicas first."
    )
    controlled_shutdown_max_retries = integer(
        "controlled.shutdown.max.retries",
        3,
        "Maximum time of a controlled shutdown, as a multiple of controlled.shutdown.retry.backoff.ms. After it a "
        "broker stops even if it still leads partitions.",
        at_least=0,
    )
    controlled_shutdown_retry_backoff_ms = long(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        "Multiplied by controlled.shutdown.max.retries, the maximum time of a controlled shutdown, in milliseconds.",
        at_least=0,
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether the controller moves leadership back to the preferred replica of a partition when it is in sync.",
    )
    leader_imbalance_check_interval_seconds = long(
        "leader.imbalance.check.interval.seconds",
        300,
        "Interval between checks of the controller for partitions not led by their preferred replica, in seconds.",
        at_least=1,
    )


class EtcdOptions:
    """As whom a broker comes to etcd, and with which certificates."""

    ottla_metadata_etcd_user = optional_text(
        f"{ETCD}user", "User as whom the broker logs in to etcd; without one it does not log in."
    )
    ottla_metadata_etcd_password = secret_option(f"{ETCD}password", "Password of that user.")
    ottla_metadata_etcd_ssl_truststore_location = optional_text(
        f"{ETCD}ssl.truststore.location",
        "PEM file with the certificates of the authorities that vouch for etcd, where --metadata is etcds://…; without "
        "one, those that the operating system trusts.",
    )
    ottla_metadata_etcd_ssl_truststore_certificates = secret_option(
        f"{ETCD}ssl.truststore.certificates", "These certificates as PEM text, in place of a file."
    )
    ottla_metadata_etcd_ssl_keystore_location = optional_text(
        f"{ETCD}ssl.keystore.location",
        "PEM file with the private key and the certificate chain, leaf first, that the broker shows to etcd; only its "
        "owner may read it (mode 0600).",
    )
    ottla_metadata_etcd_ssl_keystore_key = secret_option(
        f"{ETCD}ssl.keystore.key", "The private key as PEM text, in place of a file."
    )
    ottla_metadata_etcd_ssl_keystore_certificate_chain = secret_option(
        f"{ETCD}ssl.keystore.certificate.chain",
        "The certificate chain that belongs to this key, as PEM text, leaf first.",
    )
    ottla_metadata_etcd_ssl_key_password = secret_option(
        f"{ETCD}ssl.key.password", "Password of an encrypted private key."
    )
    ottla_metadata_etcd_ssl_endpoint_identification_algorithm = text_option(
        f"{ETCD}ssl.endpoint.identification.algorithm",
        HTTPS,
        "Whether the name in the certificate of etcd is checked: https, or nothing.",
        parse=host_check,
        bounds="https, or nothing",
        update=Update.READ_ONLY,
    )


class ReplicationOptions:
    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "Number of connections on which a follower fetches from one leader.",
        at_least=1,
    )
    replica_lag_time_max_ms = long(
        "replica.lag.time.max.ms",
        30000,
        "A follower that has not caught up with the leader's log end for this many milliseconds is removed from the "
        "ISR.",
        at_least=1,
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes",
        # Kafka's default is 1 MiB, which is one batch of a busy producer (docs/decisions/0014-bulk-replication.md).
        4194304,
        "Maximum number of bytes that a follower fetches from one partition at a time. The first batch is always "
        "returned whole.",
        at_least=0,
    )
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes",
        10485760,
        "Maximum size of the response to a follower's fetch, in bytes. The first batch is always returned whole.",
        at_least=0,
    )
    replica_fetch_min_bytes = integer(
        "replica.fetch.min.bytes",
        1,
        "Minimum size of the response to a follower's fetch, in bytes. With fewer the leader holds the fetch for at "
        "most replica.fetch.wait.max.ms.",
        at_least=0,
    )
    replica_fetch_wait_max_ms = integer(
        "replica.fetch.wait.max.ms",
        500,
        "Maximum time that the leader holds a follower's fetch, in milliseconds.",
        at_least=0,
    )
    replica_fetch_backoff_ms = integer(
        "replica.fetch.backoff.ms",
        1000,
        "Maximum time that a follower waits after an error before it fetches again, in milliseconds.",
        at_least=0,
    )
    replica_socket_timeout_ms = integer(
        "replica.socket.timeout.ms",
        30000,
        "How long a follower waits for the leader's response, in milliseconds. At least replica.fetch.wait.max.ms.",
        at_least=1,
    )
    replica_socket_receive_buffer_bytes = integer(
        "replica.socket.receive.buffer.bytes",
        65536,
        "SO_RCVBUF of a follower's socket, in bytes. The operating system's default applies when this is not set "
        "or -1.",
        at_least=-1,
    )
    leader_replication_throttled_rate = long(
        "leader.replication.throttled.rate",
        UNLIMITED,
        "Maximum number of bytes per second that the broker sends to throttled replicas that are not in sync.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    follower_replication_throttled_rate = long(
        "follower.replication.throttled.rate",
        UNLIMITED,
        "Maximum number of bytes per second that the broker fetches of throttled replicas that are not in sync.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    replication_quota_window_num = integer(
        "replication.quota.window.num", SAMPLES, "Number of samples of a replication quota's window.", at_least=1
    )
    replication_quota_window_size_seconds = integer(
        "replication.quota.window.size.seconds",
        SAMPLE_MS // 1000,
        "Length of a sample of a replication quota's window, in seconds.",
        at_least=1,
    )
    replica_selector_class = Option[str | None](
        "replica.selector.class",
        Kind.STRING,
        None,
        "When set, a consumer that names its rack is directed to an in-sync replica in that rack (KIP-392). The "
        "class is not loaded; its name selects the behaviour.",
        parse=_selector,
        bounds=RACK_AWARE_SELECTOR,
        update=Update.READ_ONLY,
    )


class VerificationOptions:
    transaction_partition_verification_enable = boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a leader asks the transaction coordinator before it appends the first batch of a transaction.",
        update=Update.CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms = integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "How long a leader waits before it asks a transaction coordinator again that has not finished the producer's "
        "previous transaction, in milliseconds.",
        at_least=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms = integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "For how long a leader asks again; then the producer is answered CONCURRENT_TRANSACTIONS, in milliseconds.",
        at_least=0,
    )
