"""Clusters that fail as clusters do, by the clients of users: links, slow followers, disks, damaged batches."""

from confluent_kafka import KafkaError

from tests.kit.clusters import Replicated, outcome
from tests.kit.members import consumer, polled, send


def test_asymmetric_cut_leaves_too_few_replicas(cluster: Replicated) -> None:
    kafka = cluster.kafka
    for follower in cluster.followers:
        # What they ask for arrives, what they are answered does not.
        kafka.links.cut(cluster.leader, to=follower)
    kafka.produce("orders", [b"only here"], acks=1)
    cluster.wait_for_isr(cluster.leader)

    assert outcome(kafka, b"refused") == "NOT_ENOUGH_REPLICAS"

    kafka.links.heal()
    kafka.wait_until_in_sync("orders")
    assert outcome(kafka, b"taken") == "ok"
    assert cluster.values() == [b"first", b"only here", b"taken"]


def test_slow_follower_leaves_the_isr_and_comes_back(cluster: Replicated) -> None:
    kafka, slow = cluster.kafka, cluster.followers[0]
    kafka.links.delay(cluster.leader, to=slow, ms=5000)
    kafka.produce("orders", [b"a"], acks=1)
    cluster.wait_for_isr(cluster.leader, cluster.followers[1])

    assert outcome(kafka) == "ok"

    kafka.links.heal(cluster.leader, slow)
    kafka.wait_until_in_sync("orders")


def test_full_disk_of_the_leader_moves_the_partition(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.disk(cluster.leader).full()

    assert outcome(kafka, b"no room") == "KAFKA_STORAGE_ERROR"

    assert cluster.wait_for_another_leader() in cluster.followers
    send(kafka, "orders", b"room")
    cluster.wait_for_isr(*cluster.followers)
    assert cluster.values() == [b"first", b"room"]


def test_full_disk_of_a_follower_takes_it_out_of_the_isr(cluster: Replicated) -> None:
    kafka, full = cluster.kafka, cluster.followers[0]
    kafka.disk(full).full(after_bytes=10)

    assert outcome(kafka) == "ok"

    cluster.wait_for_isr(cluster.leader, cluster.followers[1])
    kafka.disk(full).heal()
    # Its log has taken no harm: it goes on without a restart.
    kafka.wait_until_in_sync("orders")


def test_failed_sync_takes_the_log_offline_until_a_restart(cluster: Replicated) -> None:
    kafka, failed = cluster.kafka, cluster.leader
    kafka.create_topic("synced", 1, configs={"flush.messages": 1})
    partition = kafka.partition("synced", 0)
    partition.move_leader(to=failed)
    rest = set(cluster.followers)
    kafka.disk(failed).fail("fsync", match="synced-0/*", times=1)

    assert outcome(kafka, topic="synced") == "KAFKA_STORAGE_ERROR"
    kafka.wait(lambda _: set(partition.isr) == rest, describe="the others lead")
    kafka.brokers[failed].restart()

    kafka.wait_until_in_sync("synced")


def test_damaged_batch_is_refused_and_copied_again(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.disk(cluster.leader).corrupt("orders", 0, offset=0)

    with consumer(kafka, "readers", "orders") as made:
        message = made.poll(20)
        assert message is not None
        error = message.error()
        # CORRUPT_MESSAGE (2) in librdkafka's words.
        assert error is not None
        assert error.code() == KafkaError.INVALID_MSG == 2
        assert cluster.wait_for_another_leader() in cluster.followers
        assert polled(made, 1) == [b"first"]
    kafka.wait_until_in_sync("orders")


def test_torn_tail_is_cut_off_and_copied_again(cluster: Replicated) -> None:
    kafka, torn = cluster.kafka, cluster.followers[0]
    kafka.brokers[torn].kill()
    kafka.disk(torn).tear_tail(5, match="orders-*")

    kafka.brokers[torn].restart()

    kafka.wait_until_in_sync("orders")
    cluster.partition.move_leader(to=torn)
    assert cluster.values() == [b"first"]


def test_rule_about_fetch_leaves_followers_alone(cluster: Replicated) -> None:
    kafka = cluster.kafka
    rule = kafka.fault(api="Fetch", topic="orders", do={"error": "NOT_LEADER_OR_FOLLOWER"}, times=2)

    assert outcome(kafka) == "ok"

    assert set(cluster.partition.isr) == {cluster.leader, *cluster.followers}
    with consumer(kafka, "readers", "orders") as made:
        assert polled(made, 2) == [b"first", b"book"]
    assert rule.hits == 2
