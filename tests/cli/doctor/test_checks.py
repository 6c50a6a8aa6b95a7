"""Each fault alone gives its finding and no other; a sound cluster gives none."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ottla.cli.doctor.findings import Severity
from ottla.cli.doctor.sample import Examination, GroupHistory, OpenTransaction, WaitingRecord
from tests.cli.doctor.exams import (
    NOW_MS,
    RANGES,
    SAFE,
    broker,
    brokers,
    exam,
    group,
    log_dir,
    member,
    not_said,
    only,
    partition,
    said,
    sample,
)

P = ("orders", 0)
ORDERS = sample().partitions


def having(**changes: Any) -> Examination:
    return exam(sample(**changes))


def with_p0(**changes: Any) -> Examination:
    return having(partitions={**ORDERS, P: replace(ORDERS[P], **changes)})


def with_configs(**changes: str) -> Examination:
    named = {name.replace("_", "."): value for name, value in changes.items()}
    return having(topic_configs={"orders": {**SAFE, **named}})


def test_sound_cluster_gives_no_finding_and_no_gap() -> None:
    two = group(member("a", 0, 1), member("b", 2), p0=100, p1=100, p2=100)

    assert said(having(groups={"g": two})) == {}
    assert not_said(having(groups={"g": two})) == {}


FAULTS: Mapping[str, tuple[Examination, str]] = {
    "D3.versions-differ": (
        having(brokers=brokers(ranges={**RANGES, 1: (4, 12)})),
        "broker 3 serves Fetch 4 to 12, the others 4 to 18: an upgrade is unfinished",
    ),
    "D3.message-format": (with_configs(message_format_version="0.10.2-IV0"), "before 0.11 (orders)"),
    "D3.feature-level": (
        having(
            brokers={
                i: broker(i, finalized={"metadata.version": 20}, supported={"metadata.version": 27}) for i in (1, 2, 3)
            }
        ),
        "metadata.version 20, all brokers could at 27",
    ),
    "D4.stuck": (
        exam(
            sample(groups={"g": group(member("a", 0), state="PreparingRebalance")}),
            histories={"g": GroupHistory(240.0, 0, waits_for="worker-3")},
        ),
        "g has been joining for 4 min; it waits for worker-3, which sends heartbeats but does not rejoin",
    ),
    "D4.storm": (
        exam(sample(groups={"g": group(member("a", 0))}), histories={"g": GroupHistory(None, 4)}),
        "g began 4 generations in 15 s",
    ),
    "D5.hanging-transaction": (
        exam(
            sample(partitions={**ORDERS, P: partition(1, last_stable_offset=40)}),
            open_transactions={P: OpenTransaction(1001, 3, 40, NOW_MS - 2_460_000)},
        ),
        "orders-0: readers of committed transactions stand at 40, held by producer 1001, which wrote last 41 min ago",
    ),
    "D6.idle-member": (
        exam(
            sample(groups={"g": group(member("a", 0), member("b"), p0=100)}),
            sample(groups={"g": group(member("a", 0), member("b"), p0=90)}),
        ),
        "g has 2 members and 1 partition: 1 can never get work, and its lag grew by 10 records in 15 s",
    ),
    "D6.uneven": (
        exam(
            sample(groups={"g": group(member("a", 0, 1, 2), member("b"), p0=100)}),
            sample(groups={"g": group(member("a", 0, 1, 2), member("b"), p0=90)}),
        ),
        "a of g has 3 of 3 partitions",
    ),
    "D7.poison-record": (
        exam(
            sample(groups={"g": group(member("a", 0, 1, 2), p0=50, p1=50)}),
            sample(groups={"g": group(member("a", 0, 1, 2), p0=50, p1=90)}),
            waiting_records={P: WaitingRecord(9_800_000, ("trace",), "its value is not UTF-8")},
        ),
        "orders-0 of g stands at 50 while its other partitions go on: a record of 9.8 MB",
    ),
    "D8.leaders": (
        having(partitions={key: replace(each, leader=1) for key, each in ORDERS.items()}),
        "2 of 3 partitions are not led by their preferred replica; broker 1 leads 3",
    ),
    "D8.racks": (
        having(brokers={1: broker(1, rack="a"), 2: broker(2, rack="a"), 3: broker(3, rack="b")},
               partitions={P: partition(1, 2)}, topic_configs={"orders": {**SAFE, "min.insync.replicas": "1"}}),
        "1 partition have all replicas in one rack: orders-0",
    ),
    "D8.bytes": (having(brokers=brokers(log_dirs=(log_dir(3, 8 << 30),))), "broker 3 keeps 8.6 GB"),
    "D9.under-replicated": (with_p0(isr=(1, 2)), "1 partition lacks broker 3 only: it is down or slow, not the topics"),
    "D9.offline": (with_p0(leader=None, isr=(1, 2, 3)), "1 partition without a leader: orders-0"),
    "D10.clock": (having(brokers=brokers(clock_ahead_ms=-94_000)), "broker 3's clock is 94 s behind the clock here"),
    "D10.future-records": (with_p0(newest_ms=NOW_MS * 2), "orders has records of the future"),
    "D11.disk-full": (having(brokers=brokers(log_dirs=(log_dir(3, free=0.05),))), "is 95% full"),
    "D11.offline": (having(brokers=brokers(log_dirs=(log_dir(3, error="KAFKA_STORAGE_ERROR"),))), "/data is offline"),
    "D12.no-spare": (with_configs(min_insync_replicas="3"), "orders (3 replicas, min.insync.replicas 3)"),
    "D12.min-isr-1": (with_configs(min_insync_replicas="1"), "orders: min.insync.replicas is 1"),
    "D12.unclean": (with_configs(unclean_leader_election_enable="true"), "orders: a replica that lacks records"),
    "D12.one-replica": (
        having(partitions={P: partition(1, isr=(1,), replicas=(1,))}),
        "1 topic with one replica (orders)",
    ),
    "D12.offsets-one-replica": (
        having(partitions={("__consumer_offsets", 0): partition(1, isr=(1,), replicas=(1,))}),
        "__consumer_offsets has one replica",
    ),
    "D12.auto-create": (
        having(brokers=brokers(configs={"auto.create.topics.enable": "true"})),
        "misspelled names of topics",
    ),
    "D12.one-broker": (
        having(brokers={1: broker(1)}, partitions={P: partition(1, isr=(1,), replicas=(1,))}),
        "one broker has the only replica of 1 topic",
    ),
    "D13.eager": (
        having(groups={"g": group(*(member(f"m{i}") for i in range(21)), protocol="range")}),
        "g: a rebalance stops all 21 members, for range is eager",
    ),
    "D13.mixed-subscriptions": (
        having(groups={"g": group(member("a", 0), member("b", 1, topics=("mail",)))}),
        "members of one group subscribe to different topics",
    ),
    "D13.short-session": (
        exam(
            sample(groups={"g": group(member("a", 0))}),
            histories={"g": GroupHistory(None, 0, expired_session_timeout_ms=6000)},
        ),
        "g: sessions of 6 s have expired",
    ),
}  # fmt: skip


@pytest.mark.parametrize("expected", FAULTS)
def test_fault_gives_its_finding_alone(expected: str) -> None:
    found, words = FAULTS[expected]

    finding = only(found)

    assert finding.id == expected
    assert words in finding.text
    assert finding.advice


def test_isr_below_the_minimum_is_critical_and_says_what_fails() -> None:
    found = said(with_p0(isr=(1,)))

    assert found.keys() == {"D9.under-min-isr", "D9.under-replicated"}
    assert found["D9.under-min-isr"].severity is Severity.CRITICAL
    assert "acks=all fails" in found["D9.under-min-isr"].text


def test_client_whose_versions_are_gone_is_named() -> None:
    old = {**RANGES, 0: (12, 13)}

    found = only(having(brokers={i: broker(i, ranges=old) for i in (1, 2, 3)}))

    assert found.id == "D3.client-versions"
    assert "kafka-python 2.x" in found.text
    assert "Java's clients of Kafka 4" not in found.text
    assert "librdkafka 1.x and 2.x: Produce" in found.evidence


@pytest.mark.parametrize(
    "first",
    [
        sample(partitions={**ORDERS, P: partition(1, isr=(1, 2, 3))}),
        sample(partitions={key: each for key, each in ORDERS.items() if key != P}),
    ],
    ids=["was in sync", "was not there"],
)
def test_what_one_sample_alone_shows_is_not_reported(first: Any) -> None:
    last = sample(partitions={**ORDERS, P: partition(1, isr=(1, 2))})

    assert said(exam(first, last)) == {}
    assert said(exam(last, first)) == {}


@pytest.mark.parametrize(
    ("is_coordinated", "words", "advice"),
    [
        (True, "held by producer 7 (pay-1), which wrote last 60 s ago", "end or restart the producer, else its"),
        (
            False,
            "ago, and of which no coordinator has an open transaction",
            "ottla transactions abort orders:0 ",
        ),
        (None, "held by producer 7 (pay-1), which wrote last 60 s ago", "end or restart the producer; if it is gone"),
    ],
)
def test_who_ends_an_open_transaction_depends_on_its_coordinator(
    is_coordinated: bool | None, words: str, advice: str
) -> None:
    open_one = OpenTransaction(7, 0, 40, NOW_MS - 60_000, "pay-1", is_coordinated)
    held = sample(partitions={**ORDERS, P: partition(1, last_stable_offset=40)})

    found = only(exam(held, open_transactions={P: open_one}))

    assert words in found.text
    assert found.advice.startswith(advice)


def test_transaction_that_goes_on_is_no_finding() -> None:
    """Another one was open before."""
    before = sample(partitions={**ORDERS, P: partition(1, last_stable_offset=30)})
    now = sample(partitions={**ORDERS, P: partition(1, last_stable_offset=40)})

    assert said(exam(before, now, open_transactions={P: OpenTransaction(1, 0, 40, NOW_MS)})) == {}


def test_rebalance_is_only_likely_stuck_without_events() -> None:
    joining = sample(groups={"g": group(member("a", 0), state="PreparingRebalance")})

    found = only(exam(joining, histories=None))

    assert (found.id, found.is_sure, found.severity) == ("D4.stuck", False, Severity.WARNING)
    assert "for at least 15 s" in found.text


def test_rebalance_that_has_begun_just_now_is_no_finding() -> None:
    joining = sample(groups={"g": group(member("a", 0), state="PreparingRebalance")})

    assert said(exam(joining, histories={"g": GroupHistory(3.0, 1)})) == {}


def test_growing_disk_says_when_it_will_be_full() -> None:
    """10,000 of 200,000 free bytes in 15 s."""
    before = sample(brokers=brokers(log_dirs=(log_dir(3, 1000, free=0.21),)))
    now = sample(brokers=brokers(log_dirs=(log_dir(3, 11_000, free=0.2),)))

    found = only(exam(before, now))

    assert (found.id, found.severity) == ("D11.disk-full", Severity.CRITICAL)
    assert "80% full, and all of it in about 5 min" in found.text
    assert found.evidence == ("orders is 100% of the records there, retention.ms=604800000",)


def test_what_cannot_be_seen_is_listed_with_the_reason() -> None:
    dark = replace(broker(3), ranges=None, log_dirs=None, clock_ahead_ms=None)
    found = exam(sample(brokers={3: dark}, groups={"g": group()}, topic_configs={}), histories=None)

    assert not_said(found).keys() == {"D3", "D10", "D11", "D12", "D13"}
