"""Faults of brokers, links and disks over a test: reported when it fails, healed when it ends, for coroutines too."""

import asyncio
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode, UnknownTopicOrPartition
from ottla.testing import DiskError, LinkError
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.handle import Kafka
from ottla.testing.surroundings.disks import DiskFaults
from ottla.testing.testbed import Testbed
from ottla.testing.worker import NotRunningError
from tests.kit.clusters import Replicated, outcome, three_brokers

pytest_plugins = ("pytester",)


def test_failing_test_lists_its_steps_and_the_next_is_healed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("")
    pytester.makepyfile(
        """
    def test_fails(kafka_cluster):
        kafka_cluster.create_topic("orders", 1)
        kafka_cluster.links.cut(0, to=1)
        kafka_cluster.disk(2).slow_fsync(5)
        kafka_cluster.brokers[2].pause()
        kafka_cluster.brokers[1].kill()
        assert False

    def test_next(kafka_cluster):
        assert all(broker.is_running for broker in kafka_cluster.brokers.values())
        kafka_cluster.create_topic("orders", 1)
        kafka_cluster.produce("orders", [b"book"])
        kafka_cluster.wait_until_in_sync("orders")
    """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines(
        [
            r"-+ ottla: faults -+",
            r"\d\d:\d\d:\d\d\.\d{3} \(broker time \d\d:\d\d:\d\d\.\d{3}\)  links: cut 0 → 1",
            r".*disk 2: slow_fsync 5 ms",
            r".*broker 2: pause",
            r".*broker 1: kill",
        ],
        consecutive=True,
    )


def test_reset_brings_back_all_that_has_failed() -> None:
    bed = three_brokers()
    try:
        kafka = Kafka(bed)
        cluster = Replicated(kafka)
        one, other = cluster.followers
        kafka.disk(one).fail("write", times=None)
        kafka.produce("orders", [b"a"], acks=1)
        cluster.wait_for_isr(cluster.leader, other)
        kafka.disk(other).stall()
        kafka.brokers[other].isolate()
        kafka.brokers[cluster.leader].pause()
        kafka.brokers[one].kill()
        kafka.brokers[one].restart(after=3600)

        kafka.reset()

        assert all(broker.is_running for broker in kafka.brokers.values())
        again = Replicated(kafka)
        assert outcome(kafka) == "ok"
        assert again.values() == [b"first", b"book"]
    finally:
        bed.stop()


def test_cluster_that_was_killed_is_said_and_healed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("")
    pytester.makepyfile(
        """
    def test_ends_without_brokers(kafka_cluster):
        kafka_cluster.produce("orders", [b"book"])
        for broker in kafka_cluster.brokers.values():
            broker.kill()

    def test_fails_without_brokers(kafka_cluster):
        for broker in kafka_cluster.brokers.values():
            broker.kill()
        assert kafka_cluster.topics == []

    def test_next(kafka_cluster):
        kafka_cluster.produce("orders", [b"book"])
    """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*NotRunningError: no broker runs*", "*ottla: faults*", "*no broker runs: nothing is judged"]
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda kafka: kafka.topics,
        lambda kafka: kafka.create_topic("other"),
        lambda kafka: kafka.produce("orders", [b"a"]),
        lambda kafka: kafka.partition("orders", 0).move_leader(to=1),
        lambda kafka: kafka.load({"users": {"alice": "secret"}}),
        lambda kafka: kafka.audit(),
    ],
    ids=["topics", "create", "produce", "move", "load", "audit"],
)
def test_without_brokers_calls_say_so(cluster: Replicated, call: Any) -> None:
    for each in cluster.kafka.brokers.values():
        each.kill()
    with pytest.raises(NotRunningError, match="no broker runs"):
        call(cluster.kafka)


def test_later_restart_ends_with_the_testbed(caplog: pytest.LogCaptureFixture) -> None:
    bed = three_brokers()
    Kafka(bed).brokers[1].kill()
    Kafka(bed).brokers[1].restart(after=3600)
    tasks = bed.loop.call(lambda: asyncio.all_tasks(bed.loop.loop))
    bed.stop()
    assert all(task.done() for task in tasks if task.get_name() == "restart 1")
    assert [task.get_name() for task in tasks].count("restart 1") == 1


def test_testbed_ends_with_faults_in_force() -> None:
    bed = three_brokers()
    kafka = Kafka(bed)
    kafka.disk(0).stall()
    kafka.brokers[1].pause()
    kafka.links.cut(2, to="store")
    bed.stop()


def test_broker_alone_has_a_disk_and_can_be_paused(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    bootstrap = handle.bootstrap
    handle.brokers[0].pause()
    in_vain: dict[str, Any] = {"message.timeout.ms": 500, "socket.timeout.ms": 300}
    assert outcome(handle, **in_vain) == "_MSG_TIMED_OUT"
    handle.brokers[0].resume()
    handle.brokers[0].resume()
    assert outcome(handle) == "ok"

    handle.disk(0).full()
    assert outcome(handle) == "KAFKA_STORAGE_ERROR"
    last = [each.error for each in handle._bed.wire.since(0) if each.api == "Produce"][-1]
    assert last == ErrorCode.KAFKA_STORAGE_ERROR
    handle.disk(0).heal()
    handle.disk(0).fail("fsync", times=None)
    handle.create_topic("synced", 1, configs={"flush.messages": 1})
    assert outcome(handle, topic="synced") == "KAFKA_STORAGE_ERROR"

    handle.reset()

    assert handle.bootstrap == bootstrap
    handle.create_topic("orders", 1)
    assert outcome(handle) == "ok"
    with pytest.raises(NotRunningError, match="a test with brokers=3 can do that"):
        handle.brokers[0].kill()
    with pytest.raises(LinkError, match="one broker alone"):
        handle.brokers[0].isolate()
    with pytest.raises(LinkError, match="a broker alone keeps its metadata itself"):
        handle.links.cut(0, to="store")


def test_disks_refuse_what_cannot_be(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    disk = handle.disk(0)
    with pytest.raises(DiskError, match="'sync': expected one of fsync, write, read"):
        disk.fail("sync")
    with pytest.raises(DiskError, match="offset 0 of orders-0 is not there"):
        disk.corrupt("orders", 0, offset=0)
    with pytest.raises(UnknownTopicOrPartition, match="no replica of orders-7"):
        disk.corrupt("orders", 7, offset=0)
    with pytest.raises(DiskError, match="broker 0 runs"):
        disk.tear_tail(1)
    with pytest.raises(DiskError, match="brokers with unsynced=True only"):
        disk.lose_unsynced()


def test_what_is_in_force_is_shown(handle: Kafka) -> None:
    disk = handle.disk(0)
    assert disk.in_force() == DiskFaults(None, 0, (), is_stalled=False)
    disk.slow_fsync(3)
    disk.fail("read", match="none/*", times=None)
    before = disk.in_force()
    disk.fail("read", match="none/*")
    handle.links.delay("clients", to=0, ms=2)

    assert (before.fsync_ms, [each.left for each in before.failures]) == (3, [None])
    assert [(source, target, way.delay_ms) for source, target, way in handle.links.in_force()] == [("clients", 0, 2)]
    handle.reset()
    assert (disk.in_force().failures, handle.links.in_force()) == ((), [])


def test_slow_disk_is_waited_for(handle: Kafka) -> None:
    handle.disk(0).slow_fsync(20)
    handle.create_topic("orders", 1, configs={"flush.messages": 1})
    assert outcome(handle) == "ok"


def test_coroutines_have_the_same(bed: Testbed) -> None:
    async def alone() -> None:
        kafka = KafkaAsync(bed)
        await kafka.create_topic("orders", 1)
        broker = kafka.brokers[0]
        await broker.pause()
        assert await broker.is_running()
        await broker.resume()
        kafka.disk(0).full()
        kafka.disk(0).heal()
        assert (await kafka.partition("orders", 0).describe()).leader == 0

    asyncio.run(alone())


def test_coroutines_move_leaders_and_kill_brokers() -> None:
    bed = three_brokers()

    async def several() -> None:
        kafka = KafkaAsync(bed)
        await kafka.create_topic("orders", 1)
        await kafka.produce("orders", [b"a"])
        partition = kafka.partition("orders", 0)
        await partition.move_leader(to=1)
        rule = await partition.shrink_isr(2, now=True)
        assert set((await partition.describe()).isr) == {0, 1}
        rule.remove()
        await kafka.wait_until_in_sync("orders")
        await kafka.brokers[1].kill()
        await kafka.wait_until_leader("orders", 0)
        await kafka.brokers[1].restart()
        await kafka.brokers[2].isolate()
        kafka.links.heal()
        await kafka.wait_until_in_sync("orders")
        await kafka.group("shop").move_to(2)
        await kafka.brokers[0].stop()
        with pytest.raises(Exception, match="has leader"):
            await partition.unclean_election()

    try:
        asyncio.run(several())
    finally:
        bed.stop()
