"""A group's story from its events."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from ottla.cli.operations.group_events import Ownership, order
from ottla.cli.operations.story import Story
from tests.cli.group_events import event, member, rebalance
from tests.cli.test_end_to_end import ottla, start
from tests.conftest import QUICK_GROUPS
from tests.served import ServedBroker

MEMBER = member("app")


def story_of(*events: dict[str, Any]) -> list[str]:
    """The lines without their times, which depend on where one is."""
    story = Story()
    return [line.text for each in events for line in story.lines_of(each) if line.text]


def test_story_of_a_generation_has_its_cause_and_its_phases() -> None:
    lines = story_of(
        event("rebalance_started", 0, generation=0, cause="member joined", member_id="app-000001"),
        event("member_joined", 0, **MEMBER, client_reason="hello"),
        event(
            "generation_started", 3000, generation=1, protocol_name="range", leader_id="app-000001",
            member_ids=["app-000001"], join_phase_ms=3000,
        ),
        event("member_synced", 3010, member_id="app-000001", is_leader=True, sync_phase_ms=10),
        event("member_assigned", 3020, **MEMBER, assigned={"t": [0, 1]}),
        event("generation_completed", 3020, generation=1, leader_id="", member_ids=[], sync_phase_ms=20),
    )  # fmt: skip

    assert lines == [
        "REBALANCE to generation 1: member joined (app-000001)",
        "app…000001 joined from /h, saying: hello",
        "generation 1 begins after 3.000 s of joining: 1 member, range, leader app…000001",
        "app…000001 (leader) synced after 0.010 s",
        "app…000001 was given t-0, t-1",
        (
            "GENERATION 1 is stable after 3.020 s (joining 3.000 s, syncing 0.020 s); "
            "0 partitions moved, without an owner for 0.000 s at most"
        ),
    ]


def test_summary_of_a_generation_says_who_was_waited_for() -> None:
    assert story_of(*rebalance(0, 1, {"a": 200, "b": 16_000}))[-1] == (
        "GENERATION 2 is stable after 17.000 s (joining 16.000 s, 16.000 s of it waiting for b…000001, "
        "syncing 1.000 s); 0 partitions moved, without an owner for 0.000 s at most"
    )


def test_types_and_fields_from_the_future_are_left_alone() -> None:
    assert story_of(event("weather_changed", 0), event("lag_sampled", 0, colour="red")) == []


def test_story_of_an_expired_session_has_the_silent_time() -> None:
    lines = story_of(
        event("member_joined", 0, **MEMBER),
        event("session_expired", 6000, member_id="app-000001", session_timeout_ms=6000),
        event("member_removed", 6000, **MEMBER, cause="session expired"),
    )

    assert lines[1:] == ["app…000001 sent no heartbeat for 6.000 s", "app…000001 is out: session expired"]


def test_durations_do_not_come_from_two_clocks() -> None:
    """A coordinator that dies in a rebalance: the clocks of machines begin where they like."""
    completed = {"leader_id": "", "member_ids": [], "generation": 2}
    lines = story_of(
        event("rebalance_started", 5_000_000, generation=1, cause="member joined", wall_ms=1_000_000),
        event("group_loaded", 300, broker=2, generation=1, wall_ms=1_001_500),
        event("generation_completed", 800, broker=2, sync_phase_ms=20, wall_ms=1_000_000, **completed),
    )

    assert "GENERATION 2 is stable after 2.000 s" in lines[-1]


def test_eager_partition_has_no_owner_after_its_member_rejoins() -> None:
    ownership = Ownership()
    ownership.give({"a": {("t", 0), ("t", 1)}}, 0)
    ownership.keep("a", set(), 1000)

    assert ownership.give({"a": {("t", 0)}, "b": {("t", 1)}}, 1500) == ([("t", 1)], {("t", 0): 500, ("t", 1): 500})


def test_cooperative_story_counts_moved_partitions_as_unowned() -> None:
    ownership = Ownership()
    ownership.give({"a": {("t", 0), ("t", 1)}}, 0)
    ownership.keep("a", {("t", 0), ("t", 1)}, 1000)
    assert ownership.give({"a": {("t", 0)}, "b": set()}, 1200) == ([], {})
    ownership.keep("a", {("t", 0)}, 1300)

    assert ownership.give({"a": {("t", 0)}, "b": {("t", 1)}}, 1500) == ([("t", 1)], {("t", 1): 300})


def test_a_static_restart_moves_nothing() -> None:
    ownership = Ownership()
    ownership.give({"old": {("t", 0)}}, 0)
    ownership.rename("old", "new")

    assert ownership.give({"new": {("t", 0)}}, 100) == ([], {})


def test_order_is_by_time_then_by_number() -> None:
    events = [{"wall_ms": w, "broker": 1, "run": 0, "seq": s} for w, s in [(2, 3), (1, 9), (2, 1)]]
    assert [(e["wall_ms"], e["seq"]) for e in sorted(events, key=order)] == [(1, 9), (2, 1), (2, 3)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    settings = {**QUICK_GROUPS, "ottla.events.enable": "true", "ottla.events.flush.interval.ms": "5"}
    with ServedBroker(tmp_path_factory.mktemp("story") / "data", settings) as broker:
        yield broker


def one_member(broker: ServedBroker, group: str) -> None:
    """A group of one that comes and goes."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(group, b"x")
    producer.close()
    consumer = KafkaConsumer(
        group, bootstrap_servers=broker.bootstrap, group_id=group, client_id="app", auto_offset_reset="earliest"
    )
    assert len(next(iter(consumer.poll(timeout_ms=20_000).values()))) == 1
    consumer.close()


def test_the_story_of_a_real_group(broker: ServedBroker) -> None:
    one_member(broker, "seen")
    text = ottla(broker, "groups", "story", "seen")

    assert "REBALANCE to generation 1: member joined" in text
    assert "was given seen-0" in text
    assert "GENERATION 1 is stable" in text
    assert "is out: member left" in text
    assert text.rstrip().endswith("the group is empty: no members left")
    events = [json.loads(line) for line in ottla(broker, "groups", "story", "seen", "--json").splitlines()]
    assert {each["group_id"] for each in events} == {"seen"}


@pytest.mark.parametrize("group", ["followed", "past"])
def test_a_story_is_followed_until_ctrl_c(broker: ServedBroker, group: str) -> None:
    """Ctrl-C may come at the very moment at which all earlier events have been printed."""
    if group == "past":
        one_member(broker, group)
    process = start(broker, "groups", "story", group, "--follow")
    assert process.stdout is not None
    try:
        if group == "followed":
            one_member(broker, group)
        lines = [process.stdout.readline()]
        while "the group is empty" not in lines[-1]:
            assert lines[-1], "the command has ended by itself"
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
    assert any("GENERATION 1 is stable" in line for line in lines)


def test_group_without_events_and_broker_without_events(broker: ServedBroker, tmp_path: Path) -> None:
    assert ottla(broker, "groups", "story", "absent", status=1) == (
        "Error: there are no events of group absent in ottla.events\n"
    )
    with ServedBroker(tmp_path / "data", QUICK_GROUPS) as silent:
        for command in ("story", "why"):
            assert ottla(silent, "groups", command, "absent", status=1) == (
                "Error: there is no topic ottla.events: start the brokers with ottla.events.enable=true "
                "(--set ottla.events.enable=true), then it fills\n"
            )


def test_why_answers_in_its_first_line(broker: ServedBroker) -> None:
    one_member(broker, "asked")
    until = time.time() + 20
    while "emptied" not in (answer := ottla(broker, "groups", "why", "asked", "--since", "1h")):
        assert time.time() < until, answer

    assert re.match(r"asked: \d rebalances in \d+\.\d s; \d+\.\d s without all partitions\n", answer)
    assert "member joined" in answer
    (row,) = [row for row in json.loads(ottla(broker, "groups", "why", "--json")) if row["group_id"] == "asked"]
    assert row["history"][0]["outcome"] == "completed"
    assert ottla(broker, "groups", "why", "asked", "--until", "2020-01-01", status=1) == (
        "Error: there are no events of group asked in ottla.events of that time\n"
    )
