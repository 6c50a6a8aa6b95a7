"""/metrics/kafka: the names and labels that dashboards for Kafka query, with the figures of the broker."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.admin.metrics.kafka_families import KAFKA_FAMILIES
from ottla.broker.server.network import TcpNetwork
from ottla.protocol.messages.fetch import FetchResponse
from tests.broker.admin.pages import get
from tests.broker.admin.test_metrics import Series, committed, observed
from tests.broker.clusters import create_topic
from tests.broker.wire import client_of, fetch_request, produce

# As Strimzi's Kafka dashboard and rules and kafka_exporter's dashboard 7589 have them.
QUERIES = """
sum(kafka_controller_kafkacontroller_activecontrollercount{namespace="n"})
sum(kafka_controller_controllerstats_uncleanleaderelections_total{})
sum(kafka_server_replicamanager_leadercount{})
sum(kafka_server_replicamanager_partitioncount{})
sum(kafka_server_replicamanager_underreplicatedpartitions{})
sum(kafka_server_replicamanager_partitionswithlatetransactionscount{})
sum(kafka_cluster_partition_atminisr{})
sum(kafka_cluster_partition_underminisr{})
sum(kafka_controller_kafkacontroller_offlinepartitionscount{})
sum(irate(kafka_server_brokertopicmetrics_messagesin_total{topic=~"$t",topic!=""}[5m])) by (topic)
sum(irate(kafka_server_brokertopicmetrics_bytesin_total{topic!=""}[5m])) by (topic)
sum(irate(kafka_server_brokertopicmetrics_bytesout_total{topic!=""}[5m])) by (topic)
sum(kafka_log_log_size{topic=~"$t"}) by (topic)
sum(kafka_server_socket_server_metrics_connection_count{}) by (listener)
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_network_socketserver_networkprocessoravgidle_percent
sum(rate(kafka_topic_partition_current_offset{topic=~"$t"}[1m])) by (topic)
sum(kafka_consumergroup_lag{topic=~"$t"}) by (consumergroup, topic)
sum(delta(kafka_consumergroup_current_offset{topic=~"$t"}[5m])/5) by (consumergroup, topic)
sum(kafka_topic_partitions{topic=~"$t"}) by (topic)
kafka_topic_partition_oldest_offset kafka_topic_partition_in_sync_replica kafka_consumergroup_lag_sum
kafka_topic_partition_under_replicated_partition kafka_topic_partition_leader_is_preferred kafka_brokers
kafka_consumergroup_members kafka_consumergroup_current_offset_sum kafka_topic_partition_leader
"""


async def scraped(url: str) -> Series:
    answer = await get(TcpNetwork(), url, "/metrics/kafka")
    assert answer.status == 200, answer.body
    found: Series = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            key = sample.name, frozenset((k, v) for k, v in sample.labels.items() if k != "broker")
            assert key not in found, key
            found[key] = sample.value
    return found


def test_names_of_public_dashboards_are_there() -> None:
    assert set(re.findall(r"\bkafka_\w+", QUERIES)) - {family.name for family in KAFKA_FAMILIES} == set()


async def test_figures_are_those_of_the_broker(tmp_path: Path) -> None:
    async with observed(tmp_path) as broker:
        await create_topic(broker, "t", [0], [0])
        async with client_of(broker) as client:
            await produce(client, "t", b"one", b"two", b"three")
            await client.call(fetch_request("t", 0), FetchResponse, 12)
        assert await committed(broker, "g", 1) == 0
        await scraped(broker.admin_url)
        found = await scraped(broker.admin_url)

    def value(name: str, **labels: str) -> float | None:
        return found.get((f"kafka_{name}", frozenset(labels.items())))

    first = {"topic": "t", "partition": "0"}
    assert value("topic_partitions", topic="t") == 2
    assert value("topic_partition_current_offset", **first) == 3
    assert value("topic_partition_leader_is_preferred", **first) == 1
    assert value("consumergroup_lag", consumergroup="g", **first) == 2
    assert value("consumergroup_current_offset_sum", consumergroup="g", topic="t") == 1
    assert value("server_brokertopicmetrics_messagesin_total", topic="t") == 3
    assert (value("server_brokertopicmetrics_messagesin_total") or 0) >= 3
    assert value("server_brokertopicmetrics_totalproducerequests_total") == 1
    assert value("server_brokertopicmetrics_failedproducerequests_total") == 0
    assert value("controller_kafkacontroller_activecontrollercount") == 1
    assert value("brokers") == 1
    idle = value("server_kafkarequesthandlerpool_requesthandleravgidle_percent")
    assert idle is not None
    assert 0 <= idle <= 1
    exported = {name for name, _ in found}
    assert {family.name for family in KAFKA_FAMILIES} == exported
