"""Server properties of transactions and of the topic in which their coordinators keep them."""

from ottla.broker.config.options import INT_MAX, integer


class TransactionOptions:
    request_timeout_ms = integer(
        "request.timeout.ms",
        30000,
        "How long a transaction coordinator waits until a record of its own is replicated, and a leader until a marker "
        "is, in milliseconds.",
        at_least=1,
    )
    transaction_max_timeout_ms = integer(
        "transaction.max.timeout.ms",
        900000,
        "Maximum timeout that a producer may ask for its transactions, in milliseconds.",
        at_least=1,
    )
    transactional_id_expiration_ms = integer(
        "transactional.id.expiration.ms",
        604800000,
        "A transactional id is removed this many milliseconds after its last transaction.",
        at_least=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10000,
        "Interval between checks for transactions that are open for longer than their timeout, in milliseconds.",
        at_least=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3600000,
        "Interval between checks for expired transactional ids, in milliseconds.",
        at_least=1,
    )
    transaction_state_log_load_buffer_size = integer(
        "transaction.state.log.load.buffer.size",
        5242880,
        "Maximum number of bytes read at a time while transactional ids are loaded. At most 256 KiB are used, so that "
        "loading does not delay other requests.",
        at_least=1,
    )
    transaction_state_log_num_partitions = integer(
        "transaction.state.log.num.partitions",
        50,
        "Number of partitions of __transaction_state. It is fixed once the topic exists, because it determines the "
        "coordinator of each transactional id.",
        at_least=1,
    )
    transaction_state_log_replication_factor = integer(
        "transaction.state.log.replication.factor",
        3,
        "Replication factor of __transaction_state when it is created. If this is not set, it is at most the number of "
        "brokers, so that a single broker works.",
        at_least=1,
        at_most=32767,
    )
    transaction_state_log_min_isr = integer(
        "transaction.state.log.min.isr",
        2,
        "min.insync.replicas of __transaction_state when it is created; at most its replication factor.",
        at_least=1,
        at_most=INT_MAX,
    )
    transaction_state_log_segment_bytes = integer(
        "transaction.state.log.segment.bytes",
        104857600,
        "Segment size of __transaction_state, in bytes. Smaller segments are compacted and loaded sooner.",
        at_least=14,
    )
