"""The table of metrics: docs/metrics.md and every scrape are made from it.

A help text says what raises the metric, and where it helps, what to do. A name never changes its meaning.
"""

from typing import Final, NamedTuple

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Family(NamedTuple):
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    of_process: bool = False
    """It has no label `broker`: brokers that share a process share it."""


def _gauge(name: str, labels: str, text: str, *, of_process: bool = False) -> Family:
    return Family(name, GAUGE, tuple(labels.split()), text, of_process)


def _counter(name: str, labels: str, text: str, *, of_process: bool = False) -> Family:
    return Family(name, COUNTER, tuple(labels.split()), text, of_process)


def _histogram(name: str, labels: str, text: str, *, of_process: bool = False) -> Family:
    return Family(name, HISTOGRAM, tuple(labels.split()), text, of_process)


REQUESTS: Final = (
    _histogram(
        "ottla_request_duration_seconds",
        "api where",
        "From the read event that brought a request to its answer. where=parked: it waited, as a long poll does.",
    ),
    _counter(
        "ottla_request_errors_total", "api error", "Answers with an error, or partitions of them, by Kafka's name."
    ),
    _counter("ottla_request_bytes_total", "api", "Bytes of requests received, their size fields included."),
    _counter("ottla_response_bytes_total", "api", "Bytes of responses, as given to the sockets."),
    _gauge("ottla_requests_parked", "purgatory", "Requests that wait for a condition or their time."),
    _counter("ottla_parked_expired_total", "purgatory", "Parked requests whose time was over before their condition."),
    _gauge("ottla_connections", "listener", "Open connections of clients and brokers."),
    _counter("ottla_connections_opened_total", "listener", "Connections accepted. A high rate: clients do not pool."),
    _counter(
        "ottla_connections_closed_total",
        "listener reason",
        "Connections closed, and why: client, lost, idle, malformed, too large, not kafka, tls failed, "
        "not authenticated, authentication failed, session expired, not served, request failed, unhandled error, over "
        "limit, slow client, broker stops. The log has the address.",
    ),
    _counter(
        "ottla_authentication_total",
        "listener mechanism result",
        "Logins by SASL that have ended, by result: success or failure. Many failures: a secret was replaced, or "
        "somebody guesses. The log has the address and the reason. _other is no mechanism that is enabled.",
    ),
    _counter(
        "ottla_reauthentication_total",
        "listener mechanism result",
        "Renewals of sessions that have an end (connections.max.reauth.ms), by result as logins.",
    ),
    _counter(
        "ottla_authorization_denied_total",
        "operation resource_type",
        "What clients have asked for and the authorizer has denied. The log has the principal and the resource.",
    ),
    _counter(
        "ottla_tls_handshakes_total",
        "listener result",
        "TLS handshakes that have ended, by result: success or failure. The log has the address and the reason of "
        "failures.",
    ),
    _gauge(
        "ottla_connections_held",
        "reason",
        "Connections whose requests wait: parked (for an earlier one), writing (for the client to read), throttle, "
        "start, turn (for other connections: it sends more than the loop can give at once), login (its login failed).",
    ),
    _gauge("ottla_connections_muted", "", "Connections that are not read from until their client may go on."),
    _gauge(
        "ottla_connections_unauthenticated",
        "",
        "Connections whose TLS handshake or login is not done yet, of those that ottla.max.unauthenticated.connections "
        "limits.",
    ),
    _counter(
        "ottla_quota_throttled_total",
        "quota",
        "Answers that made a client rest because of a quota, by its key; of connection_creation_rate, connections "
        "that were closed.",
    ),
    _counter("ottla_quota_throttle_seconds_total", "quota", "For how long, summed up."),
    _gauge("ottla_quota_budgets", "quota", "Users, client ids, pairs or addresses that are measured now."),
    _gauge(
        "ottla_quota_rate",
        "quota user client_id",
        "What those with a quota use per second: bytes, or percent of one second of the loop. The 100 used last.",
    ),
    _gauge(
        "ottla_client_software_info",
        "name version",
        "1; clients that have connected since the start, as they call themselves. From 50 on, _other.",
    ),
    _histogram(
        "ottla_loop_lateness_seconds", "", "How late the event loop was for its timers. High: slow steps, CPU limits."
    ),
    _counter("ottla_loop_steps_slow_total", "", "Read events that held up the loop for 50 ms or more."),
    _gauge("ottla_loop_step_seconds_max", "", "The longest read event of 50 ms or more since the last scrape."),
    _gauge("ottla_offloaded_calls", "", "Calls, most of them to the disk, that run in threads or wait for one."),
    _gauge("ottla_offloaded_oldest_seconds", "", "Age of the oldest of these calls. Rising: the disk does not answer."),
    _counter("ottla_unhandled_errors_total", "", "Errors that no part expected: bugs. The log has each."),
)

REPLICATION: Final = (
    _counter("ottla_topic_records_in_total", "topic", "Records appended by this broker as leader."),
    _counter("ottla_topic_bytes_in_total", "topic", "Bytes of batches appended by this broker as leader."),
    _counter("ottla_topic_bytes_out_total", "topic to", "Bytes of records sent, to consumers or to followers."),
    _gauge("ottla_partition_log_start_offset", "topic partition", "The first offset kept."),
    _gauge("ottla_partition_high_watermark", "topic partition", "The first offset not yet known to all of the ISR."),
    _gauge("ottla_partition_log_end_offset", "topic partition", "The next offset to be written."),
    _gauge("ottla_partition_last_stable_offset", "topic partition", "Where readers of committed transactions end."),
    _gauge("ottla_partition_size_bytes", "topic partition", "Size of the leader's log; _other sums the rest up."),
    _gauge("ottla_partition_segments", "topic partition", "Segments of the leader's log; _other sums the rest up."),
    _gauge("ottla_partition_isr", "topic partition", "In-sync replicas."),
    _gauge("ottla_partition_replicas", "topic partition", "Replicas, in sync or not."),
    _gauge("ottla_partition_leader_epoch", "topic partition", "Counts leaders. Rising often: brokers come and go."),
    _gauge("ottla_partitions", "role", "Partitions of this broker, as leader or follower."),
    _gauge(
        "ottla_partitions_under_replicated", "", "Led here, with replicas out of sync. See which broker they all lack."
    ),
    _gauge("ottla_partitions_under_min_isr", "", "Led here, ISR below min.insync.replicas: acks=all fails now."),
    _gauge(
        "ottla_partitions_at_min_isr", "", "Led here, ISR exactly min.insync.replicas: one more loss stops producers."
    ),
    _gauge("ottla_partitions_not_preferred_leader", "", "Led here, though another replica is the preferred leader."),
    _gauge("ottla_partitions_offline", "", "Of the cluster, without a leader; from the controller alone."),
    _gauge(
        "ottla_follower_lag_records",
        "topic partition follower",
        "How far a follower is behind; while it is, or is out of sync.",
    ),
    _gauge(
        "ottla_follower_lag_seconds",
        "topic partition follower",
        "Since a follower was last at its leader's end; while it is behind, or is out of sync.",
    ),
    _counter("ottla_isr_changes_total", "change", "Changes of the ISR that leaders here made: shrink, expand."),
    _counter(
        "ottla_leader_changes_total",
        "reason",
        "Leaders changed by this broker as controller. unclean: records are lost.",
    ),
    _histogram(
        "ottla_log_write_seconds", "", "Writes of what was appended to a partition led here. High: the disk is busy."
    ),
    _histogram(
        "ottla_log_flush_seconds", "", "Syncs of logs with flush.messages or flush.ms; one may be of many logs."
    ),
    _gauge("ottla_log_failures", "", "Logs that cannot be written. Look at the kernel's log for disk errors."),
    _gauge("ottla_log_directory_bytes", "kind", "The disk of the data directory, total and free."),
    _counter("ottla_retention_deleted_bytes_total", "", "Bytes of segments that retention has removed here."),
    _counter("ottla_compaction_seconds_total", "", "How long compactions of logs here have taken."),
    _gauge(
        "ottla_compaction_dirty_ratio_max",
        "",
        "Of the compacted logs here, the largest part, by bytes, that is not compacted. "
        "Long above min.cleanable.dirty.ratio: compaction cannot keep up.",
    ),
    _gauge("ottla_fetch_sessions", "", "Fetch sessions of consumers and followers."),
    _gauge("ottla_receive_buffers_lent", "", "Large buffers that connections receive requests into."),
    _gauge("ottla_recent_appends_bytes", "", "Records kept in memory for followers."),
    _gauge("ottla_controller_active", "", "1 on the broker that is the controller. The sum is to be 1."),
    _gauge("ottla_brokers", "state", "Registered brokers; from the controller alone."),
    _gauge("ottla_metadata_store_up", "", "1 while the metadata store answers."),
    _histogram(
        "ottla_metadata_store_seconds",
        "",
        "Calls of the metadata store, until it answered or was given up. High: look at etcd's disk and network.",
    ),
    _gauge(
        "ottla_metadata_apply_lag_seconds",
        "",
        "How long this broker has known of a change in the metadata store and not applied it. 0 where all is applied.",
    ),
    _counter(
        "ottla_metadata_store_errors_total", "", "Calls that the metadata store did not answer. Rising: look at etcd."
    ),
    _gauge("ottla_metadata_session_timeout_seconds", "", "How long the session lasts that is not renewed."),
    _gauge(
        "ottla_metadata_session_remaining_seconds", "", "Until the session of this broker ends if it is not renewed."
    ),
)

GROUPS: Final = (
    _gauge("ottla_groups", "state protocol_type", "Groups coordinated here."),
    _gauge("ottla_group_members", "group", "Members of a group; _other sums the rest up."),
    _gauge("ottla_group_generation", "group", "Counts the rebalances of a group."),
    _gauge(
        "ottla_group_state_seconds",
        "group state",
        "How long the group has been in its state. Long in Preparing: stuck.",
    ),
    _counter("ottla_group_rebalances_total", "group cause", "Rebalances that began, and why; see ottla groups story."),
    _histogram("ottla_group_rebalance_seconds", "phase", "How long rebalances took: join, sync, and total."),
    _gauge("ottla_group_rebalance_last_seconds", "group phase", "How long the last rebalance of the group took."),
    _counter("ottla_group_members_removed_total", "group cause", "Members that left or were removed, and why."),
    _counter(
        "ottla_group_wait_seconds_total",
        "group for",
        "Seconds times members that waited in rebalances, and for what: member (that the others join), deadline (that "
        "members join which were then removed), initial delay, leader (its assignment), storing.",
    ),
    _counter(
        "ottla_group_partition_seconds_unowned_total",
        "group",
        "Partitions times seconds without an owner: what rebalances cost. Cooperative assignors keep it low.",
    ),
    _counter(
        "ottla_group_partition_seconds_silent_total",
        "group",
        "Partitions times seconds that members kept after their last heartbeat until their sessions expired.",
    ),
    _histogram(
        "ottla_group_load_seconds",
        "",
        "Until a partition of __consumer_offsets that has got its leader here is served.",
    ),
    _counter("ottla_group_commits_total", "group", "Commits of offsets."),
    _counter("ottla_group_store_failures_total", "group", "Changes of a group that could not be written to its log."),
    _gauge(
        "ottla_group_lag_records",
        "group topic partition",
        "Records not yet committed; the groups and partitions called _other sum a topic's rest up.",
    ),
    _gauge(
        "ottla_group_lag_seconds",
        "group topic",
        "Age of the oldest record not yet committed, the largest of the topic's partitions.",
    ),
    _counter(
        "ottla_group_records_lost_total",
        "group topic",
        "Records deleted before the group had committed them: retention is shorter than the outage.",
    ),
    _gauge(
        "ottla_group_verdict",
        "group verdict",
        "1; ok, slow, stalled, stopped, rewound, no members or unknown, by the last 10 samples of its worst partition.",
    ),
    _gauge("ottla_group_idle_members", "group", "Members without a partition: more members than partitions."),
    _counter("ottla_events_published_total", "", "Events written to ottla.events."),
    _counter(
        "ottla_events_dropped_total", "", "Events that were lost: the buffer was full, or the topic had no leader."
    ),
    _gauge("ottla_events_buffered", "", "Events that wait to be written."),
)

TRANSACTIONS: Final = (
    _gauge("ottla_transactional_ids", "state", "Transactional ids coordinated here, by Kafka's name of their state."),
    _gauge(
        "ottla_transaction_oldest_seconds",
        "state",
        "Age of the oldest transaction that is Ongoing, or has waited for its markers since PrepareCommit or "
        "PrepareAbort.",
    ),
    _histogram(
        "ottla_transaction_load_seconds",
        "",
        "Until a partition of __transaction_state that has got its leader here is served.",
    ),
    _gauge("ottla_transaction_markers_queued", "destination", "Partitions that wait for their marker, by its broker."),
    _gauge(
        "ottla_transaction_markers_retried",
        "",
        "Partitions whose marker could not be written or that have no leader. Long above 0: readers of committed "
        "records wait.",
    ),
    _histogram(
        "ottla_transaction_verification_seconds",
        "",
        "From the question to a transaction's coordinator, before the first batch of a partition, to its answer.",
    ),
    _counter(
        "ottla_transaction_verification_failures_total",
        "error",
        "Partitions that a coordinator did not confirm. CONCURRENT_TRANSACTIONS is usual between two transactions.",
    ),
    _gauge(
        "ottla_partitions_with_late_transactions",
        "",
        "Led here, and nothing was written to the oldest open transaction for transaction.max.timeout.ms and five "
        "minutes: it hangs. See ottla transactions find-hanging.",
    ),
    _gauge("ottla_producer_ids", "", "Producers remembered in the partitions led here."),
)

PROCESS: Final = (
    _gauge("ottla_build_info", "version python loop", "1; its labels say what runs.", of_process=True),
    _gauge(
        "ottla_broker_info",
        "cluster_id rack roles",
        "1; its labels say which cluster and rack the broker is in, and that any broker may become the controller.",
    ),
    _counter("ottla_gc_collections_total", "generation", "Runs of Python's garbage collector.", of_process=True),
    _histogram(
        "ottla_gc_pause_seconds",
        "",
        "How long the garbage collector held up the process, since metrics were first asked for.",
        of_process=True,
    ),
    _counter("process_cpu_seconds_total", "", "Processor time of the process.", of_process=True),
    _gauge("process_resident_memory_bytes", "", "Resident memory of the process.", of_process=True),
    _gauge("process_open_fds", "", "Open file descriptors of the process.", of_process=True),
    _gauge("process_max_fds", "", "File descriptors that the process may open.", of_process=True),
    _gauge("process_start_time_seconds", "", "When the process began, since the Unix epoch.", of_process=True),
    _gauge(
        "ottla_metrics_overflow",
        "kind",
        "Partitions, topics, groups and lags without series of their own (ottla.metrics.*).",
    ),
    _gauge("ottla_scrape_duration_seconds", "", "How long the last scrape took to render.", of_process=True),
)

FAMILIES: Final = REQUESTS + REPLICATION + GROUPS + TRANSACTIONS + PROCESS
