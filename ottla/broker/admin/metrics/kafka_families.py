"""The table of /metrics/kafka: names that dashboards and alerts for Kafka query, where the broker has the figure.

The first part is that of kafka_exporter, the second that of the JMX exporter with the rules of Strimzi's examples, in
lower case. What would have to be made up is not here: `jvm_*`, quantiles as gauges, the Raft quorum, ZooKeeper
(docs/operators.md §6).
"""

from typing import Final

from ottla.broker.admin.metrics.families import COUNTER, GAUGE, Family

TOPIC, PARTITION = ("topic",), ("topic", "partition")
GROUP_TOPIC, GROUP_PARTITION = ("consumergroup", "topic"), ("consumergroup", "topic", "partition")
_TRAFFIC = "kafka_server_brokertopicmetrics_"

EXPORTER: Final = (
    Family("kafka_brokers", GAUGE, (), "Live brokers; from the controller alone."),
    Family("kafka_topic_partitions", GAUGE, TOPIC, "Partitions of a topic; from the leader of its first one."),
    Family("kafka_topic_partition_current_offset", GAUGE, PARTITION, "The high watermark."),
    Family("kafka_topic_partition_oldest_offset", GAUGE, PARTITION, "The first offset kept."),
    Family("kafka_topic_partition_in_sync_replica", GAUGE, PARTITION, "In-sync replicas."),
    Family("kafka_topic_partition_leader", GAUGE, PARTITION, "Id of the leader."),
    Family("kafka_topic_partition_leader_is_preferred", GAUGE, PARTITION, "1 if the preferred replica leads."),
    Family("kafka_topic_partition_replicas", GAUGE, PARTITION, "Replicas, in sync or not."),
    Family("kafka_topic_partition_under_replicated_partition", GAUGE, PARTITION, "1 if replicas are out of sync."),
    Family("kafka_consumergroup_current_offset", GAUGE, GROUP_PARTITION, "What a group has committed."),
    Family("kafka_consumergroup_current_offset_sum", GAUGE, GROUP_TOPIC, "The same, of all partitions of a topic."),
    Family("kafka_consumergroup_lag", GAUGE, GROUP_PARTITION, "Records not yet committed."),
    Family("kafka_consumergroup_lag_sum", GAUGE, GROUP_TOPIC, "The same, of all partitions of a topic."),
    Family("kafka_consumergroup_members", GAUGE, ("consumergroup",), "Members of a group."),
)

JMX: Final = (
    Family(f"{_TRAFFIC}messagesin_total", COUNTER, TOPIC, "Records appended; without topic, of all topics."),
    Family(f"{_TRAFFIC}bytesin_total", COUNTER, TOPIC, "Bytes appended; without topic, of all topics."),
    Family(f"{_TRAFFIC}bytesout_total", COUNTER, TOPIC, "Bytes sent to consumers; without topic, of all topics."),
    Family(f"{_TRAFFIC}totalproducerequests_total", COUNTER, (), "Produce requests answered."),
    Family(f"{_TRAFFIC}totalfetchrequests_total", COUNTER, (), "Fetch requests answered, those of followers too."),
    Family(f"{_TRAFFIC}failedproducerequests_total", COUNTER, (), "Errors in answers to Produce, by partition."),
    Family(f"{_TRAFFIC}failedfetchrequests_total", COUNTER, (), "Errors in answers to Fetch, by partition."),
    Family("kafka_server_replicamanager_leadercount", GAUGE, (), "Partitions led here."),
    Family("kafka_server_replicamanager_partitioncount", GAUGE, (), "Replicas here."),
    Family("kafka_server_replicamanager_underreplicatedpartitions", GAUGE, (), "Led here, replicas out of sync."),
    Family("kafka_server_replicamanager_underminisrpartitioncount", GAUGE, (), "Led here, ISR below the minimum."),
    Family("kafka_server_replicamanager_partitionswithlatetransactionscount", GAUGE, (), "Led here, one hangs."),
    Family("kafka_server_replicamanager_produceridcount", GAUGE, (), "Producers remembered in partitions led here."),
    Family("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, (), "1 on the controller."),
    Family("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, (), "Without a leader; of the cluster."),
    Family("kafka_controller_controllerstats_uncleanleaderelections_total", COUNTER, (), "Such lose records."),
    Family("kafka_cluster_partition_underminisr", GAUGE, PARTITION, "1 if the ISR is below min.insync.replicas."),
    Family("kafka_cluster_partition_atminisr", GAUGE, PARTITION, "1 if the ISR is exactly min.insync.replicas."),
    Family("kafka_log_log_size", GAUGE, PARTITION, "Size of the leader's log in bytes."),
    Family("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "1 if no log can be written."),
    Family("kafka_server_socket_server_metrics_connection_count", GAUGE, ("listener",), "Open connections."),
    Family(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", GAUGE, (),
        "How much of its time the event loop was idle since the last scrape, 0 to 1.",
    ),
    Family(
        "kafka_network_socketserver_networkprocessoravgidle_percent", GAUGE, (),
        "The same: one loop does both.",
    ),
)  # fmt: skip

KAFKA_FAMILIES: Final = EXPORTER + JMX
