"""What brokers do when their time is moved, without clients."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from ottla.testing import DeadlineExceeded
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.handle import Kafka
from ottla.testing.report import ReportMark, failure_sections
from ottla.testing.testbed import Testbed
from ottla.timer.clock import PERIODIC, TimerKind
from tests.kit.members import consumer, polled, send

DAY = timedelta(days=1)


def kinds(fired: list) -> list[str]:  # type: ignore[type-arg]
    return [str(each.kind) for each in fired if each.kind not in PERIODIC]


def test_retention_takes_records_and_their_files(bed: Testbed, handle: Kafka) -> None:
    """With the default retention of seven days; the active segment is rolled first."""
    handle.create_topic("orders", partitions=1)
    handle.produce("orders", [b"old"])
    handle.clock.advance("6d")
    assert [each.value for each in handle.records("orders")] == [b"old"]
    (parts,) = bed.hosted.parts().values()
    directory = Path(parts.log_directory.path) / "orders-0"

    handle.clock.advance("2d")
    handle.produce("orders", [b"new"])

    assert [(each.value, each.offset) for each in handle.records("orders")] == [(b"new", 1)]
    assert [path.name for path in sorted(directory.glob("*.log*"))] == ["00000000000000000001.log"]


def test_offsets_expire_once_the_group_is_empty(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1, configs={"retention.ms": -1})
    handle.produce("orders", [b"a"])
    with consumer(handle, "shop", "orders") as shop:
        polled(shop, 1)
        shop.commit(asynchronous=False)
        handle.clock.advance("8d")
        assert handle.group("shop").offsets == {("orders", 0): 1}
        (waits,) = [each.what for each in handle.clock.pending() if each.kind == "offsets-expiry"]
        assert waits == "not of group shop, which has 1 members"
    handle.clock.advance("6d")
    assert handle.group("shop").offsets == {("orders", 0): 1}
    handle.clock.advance("2d")
    assert handle.group("shop").offsets == {}


def test_transaction_is_aborted_at_its_timeout(handle: Kafka) -> None:
    """A producer that is silent has earned it, whether its connection is open or not."""
    handle.create_topic("orders", partitions=1)
    config = {"transactional.id": "till", "transaction.timeout.ms": 60_000, "log_level": 0}
    till = Producer(handle.client_config("producer") | config)
    till.init_transactions(20)
    till.begin_transaction()
    till.produce("orders", b"a")
    till.flush(20)
    began = handle.clock.now()
    assert "transactional id till" in [each.what for each in handle.clock.pending()]

    fired = handle.clock.advance("8d")

    (ended,) = [each for each in fired if each.what == "transactional id till"]
    assert timedelta(seconds=59) < ended.at - began < timedelta(seconds=71), "by the round that finds it"
    assert handle.topic("orders").partitions[0].last_stable_offset == 2
    assert handle.records("orders") == []
    till.purge()


def test_compaction_follows_its_lag(handle: Kafka) -> None:
    configs = {"cleanup.policy": "compact", "min.compaction.lag.ms": 3_600_000, "max.compaction.lag.ms": 7_200_000}
    handle.create_topic("stock", partitions=1, configs=configs)
    handle.produce("stock", [(b"book", b"%d" % number) for number in range(5)])
    handle.clock.advance("59m")
    assert len(handle.records("stock")) == 5
    handle.clock.advance("3h")
    # The round that rolled the segment was the one at the end.
    handle.clock.advance("1s")

    assert [each.value for each in handle.records("stock")] == [b"4"]


def test_eight_days_are_the_same_at_once_and_round_by_round(handle: Kafka) -> None:
    """With jobs in every round of an hour: the same records, offsets and transactions are left."""

    def left_after(*, every: bool) -> tuple[object, ...]:
        handle.reset()
        handle.create_topic("orders", partitions=2, configs={"retention.ms": 1_200_000})
        handle.produce("orders", [b"a", b"b"])
        send(handle, "orders", b"c", **{"enable.idempotence": True}).flush()
        handle.clock.freeze()
        handle.clock.advance("1h", every=every)
        ends = [(each.log_start_offset, each.high_watermark) for each in handle.topic("orders").partitions]
        return sorted(ends), handle.records("orders"), handle.groups

    assert left_after(every=False) == left_after(every=True)


def test_frozen_stamps_repeat_and_fetches_end(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    with handle.clock.frozen(at=datetime(2030, 1, 1, tzinfo=UTC)) as clock, consumer(handle, "shop", "orders") as shop:
        send(handle, "orders", b"a", b"b")
        assert polled(shop, 2) == [b"a", b"b"]
        assert clock.now() == datetime(2030, 1, 1, tzinfo=UTC)

    assert {each.timestamp for each in handle.records("orders")} == {1_893_456_000_000}
    assert abs(handle.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)


def stamp_ahead_ms(kafka: Kafka) -> int:
    """How far the stamp that a broker gives a record is ahead of the time of all."""
    if "stamps" not in kafka.topics:
        kafka.create_topic("stamps", 1, configs={"message.timestamp.type": "LogAppendTime", "retention.ms": -1})
    kafka.produce("stamps", [b"a"])
    return kafka.records("stamps")[-1].timestamp - round(kafka.clock.now().timestamp() * 1000)


def test_wall_clock_of_one_broker_is_skewed(handle: Kafka) -> None:
    handle.clock.freeze()
    handle.clock.skew(0, "-1h")

    assert stamp_ahead_ms(handle) == -3_600_000
    with pytest.raises(ValueError, match="no broker 7 that runs, only 0"):
        handle.clock.skew(7, 1)


def test_wall_clock_of_one_broker_drifts(handle: Kafka) -> None:
    handle.clock.freeze()
    handle.clock.drift(0, 1.01)
    handle.clock.advance("100s")
    assert stamp_ahead_ms(handle) == pytest.approx(1000, abs=2)
    handle.clock.skew(0, "-5s")
    handle.clock.advance("100s")
    assert stamp_ahead_ms(handle) == pytest.approx(-4000, abs=2)
    handle.snapshot("drifting")
    handle.clock.drift(0, 1)
    handle.clock.advance("100s")
    assert stamp_ahead_ms(handle) == pytest.approx(-4000, abs=2)
    handle.restore("drifting")
    handle.clock.advance("100s")
    assert stamp_ahead_ms(handle) == pytest.approx(-3000, abs=2)

    handle.reset()
    assert abs(stamp_ahead_ms(handle)) < 1000


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda clock: clock.advance(-1), "does not go back"),
        (lambda clock: clock.advance("8 weeks"), "expected seconds"),
        (lambda clock: clock.advance(1, sessions="spared"), "expected spare, expire"),
        (lambda clock: clock.set_rate(0), "expected more than 0"),
        (lambda clock: clock.drift(0, 0), "expected more than 0"),
        (lambda clock: clock.drift(7, 2), "no broker 7 that runs"),
        (lambda clock: clock.set_rate(21, sessions="expire"), "at most 20"),
        (lambda clock: clock.run_next("nap"), "kind='nap': expected one of transport, session"),
    ],
)
def test_what_cannot_be_meant_is_refused(handle: Kafka, wrong, says) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=says):
        wrong(handle.clock)


def test_next_timer_runs_and_no_further(handle: Kafka) -> None:
    """The client is too slow to heartbeat while the test runs: one that arrives between two stops of a walk counts."""
    handle.create_topic("orders", partitions=1)
    slow = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 40_000}
    with consumer(handle, "shop", "orders", **slow) as shop:
        shop.poll(0)
        handle.group("shop").wait_until_stable(members=1)
        handle.clock.freeze()
        assert handle.clock.run_next() == [], "its client lives"
        before = handle.clock.now()
        (fired,) = [each for each in handle.clock.run_next("session", sessions="expire") if each.kind == "session"]
        assert fired.at == handle.clock.now()
        assert timedelta(seconds=5) < fired.at - before <= timedelta(seconds=45)
        assert handle.group("shop").members == ()
        fired = handle.clock.run_next("retention", sessions="expire")
        assert [each.at for each in fired if each.kind is TimerKind.RETENTION] == [handle.clock.now()]


def test_frozen_wait_says_what_it_waits_for(tmp_path: object) -> None:
    bed = Testbed(profile="kafka", settings={"offsets.topic.num.partitions": 1}, deadline=20)
    bed.start()
    try:
        handle = Kafka(bed)
        handle.create_topic("orders", partitions=1)
        shop = handle.group("shop")
        with consumer(handle, "shop", "orders") as made:
            handle.clock.freeze()
            made.poll(0)
            handle.wait(lambda kafka: kafka.group("shop").members, describe="a member")
            with pytest.raises(DeadlineExceeded) as missed:
                shop.wait_until_stable(members=1, within=0.05)
            assert "broker time is frozen; join of group shop would end in 3 s; " in str(missed.value)

            assert kinds(handle.clock.advance("3s")) == ["join"]
            shop.wait_until_stable(members=1)
    finally:
        bed.stop()


def test_frozen_clock_by_itself_is_a_hint_of_waits_alone(handle: Kafka) -> None:
    handle.clock.freeze()
    with pytest.raises(DeadlineExceeded) as missed:
        handle.wait_for_records("orders", 1, within=0.01)

    assert missed.value.hints == ("broker time is frozen; clock.advance() or clock.resume() lets it pass",)
    assert handle._bed.call(handle._bed.clock.hints) == []


def test_failure_report_says_how_time_was_moved(bed: Testbed, handle: Kafka) -> None:
    mark = ReportMark.now(bed)
    assert "ottla: clock" not in dict(bed.call(failure_sections, bed, mark))
    handle.clock.freeze()
    handle.clock.advance("8d")
    text = dict(bed.call(failure_sections, bed, mark))["ottla: clock"]

    assert "frozen, 8 d ahead of the machine's" in text
    assert "advanced by 8 d" in text
    handle.reset()
    assert bed.call(bed.clock.report) == []


def test_coroutines_move_the_clock_on_any_loop(bed: Testbed) -> None:
    async def story() -> None:
        clock = KafkaAsync(bed).clock
        async with clock.frozen(at=datetime(2026, 1, 1, tzinfo=UTC)):
            await clock.advance("1d")
            assert await clock.now() == datetime(2026, 1, 2, tzinfo=UTC)
            await clock.set(datetime(2025, 1, 1, tzinfo=UTC))
            await clock.skew(0, 5)
            assert await clock.run_next("retention")
            assert [each.kind for each in await clock.pending()]
            clock.ties = Random(1)
            await clock.resume()
            await clock.set_rate(2.0)
            assert await clock.rate() == 2.0
        assert await clock.rate() == 1.0
        assert clock.ties is None

    asyncio.run(story())


def test_reset_of_time_that_was_not_moved_ends_the_shuffling(handle: Kafka) -> None:
    handle.clock.ties = Random(1)
    handle.reset()
    assert handle.clock.ties is None


def test_rate_lets_time_pass_by_itself_and_spares_the_living(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    with consumer(handle, "shop", "orders", **{"session.timeout.ms": 6_000}) as shop:
        shop.poll(0)
        handle.group("shop").wait_until_stable(members=1)
        generation = handle.group("shop").generation
        handle.clock.rate = 600.0
        begin = handle.clock.now()
        handle.wait(lambda kafka: kafka.clock.now() - begin > timedelta(minutes=10), describe="ten minutes")
        assert (handle.group("shop").generation, len(handle.group("shop").members)) == (generation, 1)
    handle.group("shop").wait_until_empty()


@pytest.fixture
def three(tmp_path: object) -> Iterator[Kafka]:
    settings = {"default.replication.factor": 3, "min.insync.replicas": 2, "offsets.topic.replication.factor": 3}
    bed = Testbed(brokers=3, settings=settings, deadline=30)
    bed.start()
    yield Kafka(bed)
    bed.stop()


def test_three_brokers_survive_eight_days(three: Kafka) -> None:
    """Their leases and their fetches go by the machine's time."""
    survives_eight_days(three)


def survives_eight_days(three: Kafka) -> None:
    three.create_topic("orders", partitions=3, configs={"retention.ms": 1000})
    three.produce("orders", [b"a", b"b", b"c"])
    three.wait_until_in_sync("orders")
    epochs = [each.leader_epoch for each in three.topic("orders").partitions]

    three.clock.advance("8d")

    three.wait_until_in_sync("orders", within=3)
    assert [each.leader_epoch for each in three.topic("orders").partitions] == epochs
    assert all(each.log_start_offset == each.log_end_offset for each in three.topic("orders").partitions)
    three.produce("orders", [b"d"])
    three.wait_until_in_sync("orders")
    assert [each.leader_epoch for each in three.topic("orders").partitions] == epochs
    assert [each.value for each in three.records("orders")] == [b"d"]


def test_broker_that_starts_again_has_the_time_of_the_others(three: Kafka) -> None:
    three.clock.freeze(at=datetime(2031, 1, 1, tzinfo=UTC))
    three.brokers[2].kill()
    three.brokers[2].restart()
    three.create_topic("orders", partitions=3)
    three.wait_until_in_sync("orders")
    three.clock.advance("1d")

    clocks = [parts.runtime.broker_clock.wall_ms() for parts in three._bed.hosted.parts().values()]
    assert clocks == [1_925_078_400_000] * 3
