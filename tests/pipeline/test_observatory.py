"""The tables of the observatory on small frames with known truth."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ottla.pipeline.events import SCHEMA, events_of, transaction_events_of
from ottla.pipeline.observatory import TABLES
from ottla.pipeline.observatory.lag import lag
from ottla.pipeline.observatory.leadership import leadership
from ottla.pipeline.observatory.ownership import partition_ownership
from ottla.pipeline.observatory.rebalances import rebalances
from ottla.pipeline.observatory.sessions import COLUMNS as SESSION_COLUMNS
from ottla.pipeline.observatory.sessions import member_sessions
from ottla.pipeline.observatory.stuck import stuck_members
from ottla.pipeline.observatory.tables import tables_of

REBALANCE_COLUMNS = (
    "group_id", "incarnation", "generation", "cause", "cause_member_id", "client_reason", "broker", "started_at",
    "started_ms", "outcome", "duration_ms", "join_phase_ms", "sync_phase_ms", "members", "leader_id", "protocol_name",
    "slowest_member_id", "slowest_client_id", "slowest_ms", "dropped_members", "is_initial",
)  # fmt: skip
LEADERSHIP_COLUMNS = (
    "topic", "partition", "leader", "leader_epoch", "previous_leader", "led_from", "led_until", "led_ms",
    "leaderless_ms", "isr_changes", "smallest_isr", "groups", "load_ms",
)  # fmt: skip

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

START_MS = 1_700_000_000_000
RECORDS = "topic STRING, value BINARY"


class Log:
    """Events as a broker would publish them; times are milliseconds after the start."""

    def __init__(self, spark: Any, *, group: str | None = "g", broker: int = 1) -> None:
        self.spark = spark
        self.group = group
        self.broker = broker
        self.events: list[dict[str, Any]] = []

    def add(self, at_ms: int, event_type: str, **fields: Any) -> None:
        envelope = {
            "v": 1,
            "type": event_type,
            "wall_ms": START_MS + at_ms,
            "mono_ms": 50_000 + at_ms,
            "broker": self.broker,
            "run": 9,
            "seq": len(self.events),
            "group_id": self.group,
        }
        self.events.append(envelope | fields)

    def started(self, at_ms: int, generation: int, cause: str, member: str) -> None:
        self.add(at_ms, "rebalance_started", generation=generation, cause=cause, member_id=member)

    def rejoined(self, at_ms: int, generation: int, member: str, owned: dict[str, list[int]] | None = None) -> None:
        self.add(
            at_ms,
            "member_rejoined",
            generation=generation,
            member_id=member,
            client_id=f"app-{member}",
            owned=owned or {},
        )

    def generation(self, at_ms: int, generation: int, members: list[str], join_phase_ms: int) -> None:
        self.add(
            at_ms, "generation_started", generation=generation, member_ids=members, leader_id=members[0],
            protocol_name="range", join_phase_ms=join_phase_ms,
        )  # fmt: skip

    def completed(self, at_ms: int, generation: int, sync_phase_ms: int, **assigned: list[int]) -> None:
        for member, partitions in assigned.items():
            self.add(
                at_ms, "member_assigned", generation=generation, member_id=member, client_id=f"app-{member}",
                assigned={"t": partitions} if partitions else {},
            )  # fmt: skip
        self.add(at_ms, "generation_completed", generation=generation, sync_phase_ms=sync_phase_ms)

    def leader_changed(self, at_ms: int, epoch: int, **fields: Any) -> None:
        self.add(at_ms, "leader_changed", **{"topic": "t", "partition": 0, "leader_epoch": epoch, **fields})

    def isr_changed(self, at_ms: int, epoch: int, **fields: Any) -> None:
        self.add(at_ms, "isr_changed", **{"topic": "t", "partition": 0, "leader_epoch": epoch, **fields})

    def frame(self) -> Any:
        rows = [("ottla.events", bytearray(json.dumps(event).encode())) for event in self.events]
        return self.spark.createDataFrame(rows, RECORDS)

    def parsed(self) -> Any:
        """Cached as for the tables: Spark would plan it again for each use."""
        return events_of(self.frame()).cache()


def when(at_ms: int) -> datetime:
    return datetime.fromtimestamp((START_MS + at_ms) / 1000, UTC).replace(tzinfo=None)


def rows_of(frame: Any, *names: str, order: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy(order).select(*names).collect()]


@pytest.fixture
def log(spark: Any) -> Iterator[Log]:
    yield Log(spark)
    spark.catalog.clearCache()


# Events


def test_only_events_of_a_known_version_are_read_and_once(log: Log) -> None:
    log.add(0, "rebalance_started", generation=0)
    log.events += [log.events[0] | {"v": 2, "seq": 7}, log.events[0], {"no": "event"}]
    others = log.spark.createDataFrame(
        [("t", bytearray(b"{}")), ("ottla.events", bytearray(b"\xff{")), ("ottla.events", None)], RECORDS
    )

    assert [row.seq for row in events_of(log.frame().union(others)).collect()] == [0]


def test_the_schema_has_every_field_that_the_tables_read() -> None:
    assert {"group_id", "mono_ms", "assigned", "owned", "join_phase_ms"} <= {
        part.split()[0] for part in SCHEMA.split(", ")
    }


# Rebalances


def test_rebalance_has_cause_phases_and_slowest_member(log: Log) -> None:
    log.started(0, 3, "member left", "c")
    log.rejoined(20, 3, "a")
    log.rejoined(2900, 3, "b")
    log.generation(2901, 4, ["a", "b"], 2901)
    log.completed(2950, 4, 49)

    (row,) = rebalances(log.parsed()).collect()

    assert tuple(row.asDict()) == REBALANCE_COLUMNS
    assert row.asDict() | {"started_at": None} == {
        "group_id": "g", "incarnation": 0, "generation": 4, "cause": "member left", "cause_member_id": "c",
        "client_reason": None, "broker": 1, "started_at": None, "started_ms": START_MS, "outcome": "completed",
        "duration_ms": 2950, "join_phase_ms": 2901, "sync_phase_ms": 49, "members": 2, "leader_id": "a",
        "protocol_name": "range", "slowest_member_id": "b", "slowest_client_id": "app-b", "slowest_ms": 2900,
        "dropped_members": 0, "is_initial": False,
    }  # fmt: skip


def test_later_of_two_joins_in_one_millisecond_is_slowest(log: Log) -> None:
    log.started(0, 1, "member joined", "b")
    log.rejoined(0, 1, "b")
    log.rejoined(0, 1, "a")
    log.generation(0, 2, ["a", "b"], 0)

    assert rows_of(rebalances(log.parsed()), "slowest_member_id", "slowest_ms", order="started_ms") == [("a", 0)]


def test_a_member_that_never_came_back_is_the_slowest(log: Log) -> None:
    log.started(0, 1, "leader rejoined", "a")
    log.rejoined(0, 1, "a")
    log.add(30_000, "member_removed", generation=1, member_id="b", client_id="app-b", cause="did not rejoin in time")
    log.generation(30_000, 2, ["a"], 30_000)
    log.completed(30_010, 2, 10)

    assert rows_of(
        rebalances(log.parsed()), "slowest_member_id", "slowest_ms", "dropped_members", order="started_ms"
    ) == [("b", 30_000, 1)]


def test_whose_expiry_begins_a_rebalance_did_not_hold_it_up(log: Log) -> None:
    log.add(0, "member_removed", generation=1, member_id="b", client_id="app-b", cause="session expired")
    log.started(0, 1, "session expired", "b")
    log.rejoined(500, 1, "a")
    log.generation(500, 2, ["a"], 500)

    assert rows_of(rebalances(log.parsed()), "cause", "slowest_member_id", "dropped_members", order="started_ms") == [
        ("session expired", "a", 0)
    ]


def test_how_a_rebalance_can_end(log: Log) -> None:
    log.started(0, 0, "member joined", "a")
    log.generation(100, 1, ["a"], 100)
    log.started(150, 1, "member joined", "b")
    log.generation(200, 2, ["a", "b"], 50)
    log.completed(230, 2, 30)
    log.started(1000, 2, "member left", "a")
    log.add(1010, "state_changed", generation=3, to_state="Empty")
    log.started(2000, 3, "member joined", "c")

    assert rows_of(rebalances(log.parsed()), "generation", "outcome", "duration_ms", order="started_ms") == [
        (1, "superseded", 150),
        (2, "completed", 80),
        (3, "emptied", 10),
        (4, "open", None),
    ]


def test_generations_of_a_recreated_group_are_kept_apart(log: Log) -> None:
    for begin in (0, 10_000):
        log.started(begin, 0, "member joined", "a")
        log.generation(begin + 10, 1, ["a"], 10)
        log.completed(begin + 15, 1, 5)
        log.add(begin + 100, "state_changed", generation=1, to_state="Dead")

    assert rows_of(rebalances(log.parsed()), "incarnation", "generation", "duration_ms", order="started_ms") == [
        (0, 1, 15),
        (1, 1, 15),
    ]


# Members


def test_a_members_session_from_join_to_leave(log: Log) -> None:
    who = {"member_id": "a", "client_id": "app", "client_host": "/h"}
    log.add(0, "member_joined", generation=0, **who)
    log.completed(10, 1, 5, a=[0])
    log.rejoined(500, 1, "a")
    log.completed(600, 2, 5, a=[0])
    log.add(900, "member_removed", generation=2, **who, cause="member left", client_reason="closed")

    (row,) = member_sessions(log.parsed()).collect()

    assert tuple(row.asDict()) == SESSION_COLUMNS
    assert (row.client_id, row.client_host, row.left_cause, row.client_reason) == ("app", "/h", "member left", "closed")
    assert (row.joined_at, row.left_at, row.duration_ms) == (when(0), when(900), 900)
    assert (row.rejoins, row.generations) == (1, 2)


def test_a_static_restart_ends_one_session_and_begins_another(log: Log) -> None:
    log.add(0, "member_joined", generation=0, member_id="i-1", group_instance_id="i", client_id="app")
    log.add(
        100, "static_member_replaced", generation=1, group_instance_id="i", old_member_id="i-1", new_member_id="i-2"
    )

    assert rows_of(
        member_sessions(log.parsed()), "member_id", "group_instance_id", "left_cause", "duration_ms", order="member_id"
    ) == [("i-1", "i", "static member replaced", 100), ("i-2", "i", None, None)]


# Ownership

OWNED = ("partition", "owner", "owned_ms", "previous_owner", "unowned_ms")


def owned(log: Log) -> list[tuple[Any, ...]]:
    frame = partition_ownership(log.parsed())
    return [tuple(row) for row in frame.orderBy("partition", "owned_from").select(*OWNED).collect()]


def test_eager_partition_is_unowned_from_rejoin_to_assignment(log: Log) -> None:
    log.completed(0, 1, 5, a=[0, 1])
    log.rejoined(1000, 1, "a")
    log.completed(1300, 2, 5, a=[0], b=[1])

    assert owned(log) == [
        (0, "a", 1000, None, None),
        (0, "a", None, "a", 300),
        (1, "a", 1000, None, None),
        (1, "b", None, "a", 300),
    ]


def test_cooperative_rebalance_unowns_only_moved_partitions(log: Log) -> None:
    log.completed(0, 1, 5, a=[0, 1])
    log.rejoined(1000, 1, "a", {"t": [0, 1]})
    log.completed(1200, 2, 5, a=[0], b=[])
    log.rejoined(1250, 2, "a", {"t": [0]})
    log.completed(1500, 3, 5, a=[0], b=[1])

    assert owned(log) == [
        (0, "a", None, None, None),
        (1, "a", 1200, None, None),
        (1, "b", None, "a", 300),
    ]


def test_static_member_keeps_partitions_until_it_is_removed(log: Log) -> None:
    member = {"group_instance_id": "i", "client_id": "app"}
    log.add(0, "member_assigned", generation=1, member_id="i-1", **member, assigned={"t": [0]})
    log.add(
        500, "static_member_replaced", generation=1, group_instance_id="i", old_member_id="i-1", new_member_id="i-2"
    )
    log.add(700, "member_removed", generation=1, member_id="i-2", **member, cause="session expired")
    log.completed(900, 2, 5, a=[0])

    assert owned(log) == [(0, "i", 700, None, None), (0, "a", None, "i", 200)]


# Lag and stuck members


def sample(log: Log, at_ms: int, committed: list[int], end: list[int | None]) -> None:
    log.add(at_ms, "lag_sampled", topic="t", partition=list(range(len(end))), committed=committed, end=end)


def test_lag_by_partition_and_sample(log: Log) -> None:
    sample(log, 0, [5, 7, 9], [8, 7, None])
    assert rows_of(lag(log.parsed()), "partition", "committed", "end", "lag", order="partition") == [
        (0, 5, 8, 3),
        (1, 7, 7, 0),
        (2, 9, None, None),
    ]


def stuck(log: Log, no_progress_ms: int = 20_000) -> list[tuple[Any, ...]]:
    events = log.parsed()
    frame = stuck_members(events, lag(events), partition_ownership(events), no_progress_ms=no_progress_ms)
    return rows_of(frame, "kind", "owner", "topic", "partition", "duration_ms", "lag", order="kind")


def test_member_without_commits_in_spite_of_lag_is_stuck(log: Log) -> None:
    log.completed(0, 1, 5, a=[0], b=[1])
    for number in range(5):
        sample(log, 10_000 * number, [5, 5 + number], [10 + number, 20])

    assert stuck(log) == [("no progress", "a", "t", 0, 40_000, 9)]


def test_partition_is_stuck_only_with_lag_and_may_lack_an_owner(log: Log) -> None:
    for number in range(5):
        sample(log, 10_000 * number, [5, 3], [5, 9])
    assert stuck(log) == [("no progress", None, "t", 1, 40_000, 6)]


def test_a_stretch_ends_with_the_next_commit(log: Log) -> None:
    for number, committed in enumerate([5, 5, 6, 6]):
        sample(log, 10_000 * number, [committed], [9])
    assert stuck(log) == []
    assert stuck(log, no_progress_ms=10_000) == [
        ("no progress", None, "t", 0, 10_000, 4),
        ("no progress", None, "t", 0, 10_000, 3),
    ]


def test_members_dropped_because_others_waited_are_listed(log: Log) -> None:
    for cause in ("did not rejoin in time", "member left", "members never synced"):
        log.add(0, "member_removed", generation=1, member_id="m", client_id="app", cause=cause)
    assert [row[:2] for row in stuck(log)] == [("did not rejoin in time", "m"), ("members never synced", "m")]


# Leadership

LED = ("leader", "leader_epoch", "previous_leader", "led_ms", "leaderless_ms", "isr_changes", "smallest_isr")


def led(log: Log, *names: str) -> list[tuple[Any, ...]]:
    return rows_of(leadership(log.parsed()), *(names or LED), order="led_from")


def test_a_leaders_term_lasts_until_the_next_one(log: Log) -> None:
    log.leader_changed(0, 0, leader=1, isr=[1, 2, 3])
    log.isr_changed(400, 0, leader=1, isr=[1, 2], left=[3])
    log.isr_changed(700, 0, leader=1, isr=[1, 2, 3], joined=[3])
    log.leader_changed(900, 1, leader=2, previous_leader=1, isr=[2, 3])

    (first, second) = leadership(log.parsed()).orderBy("led_from").collect()

    assert tuple(first.asDict()) == LEADERSHIP_COLUMNS
    assert (first.topic, first.partition, first.led_from, first.led_until) == ("t", 0, when(0), when(900))
    assert led(log) == [(1, 0, None, 900, None, 2, 2), (2, 1, 1, None, 0, 0, 2)]
    assert second.led_until is None


def test_leaderless_time_of_a_partition(log: Log) -> None:
    log.leader_changed(0, 0, leader=1, isr=[1])
    log.leader_changed(500, 1, previous_leader=1, isr=[1])
    log.leader_changed(1700, 2, leader=1, isr=[1])

    assert led(log, "leader", "leader_epoch", "previous_leader", "led_ms", "leaderless_ms") == [
        (1, 0, None, 500, None),
        (1, 2, 1, None, 1200),
    ]


def test_term_without_its_event_begins_with_its_first_event(log: Log) -> None:
    log.isr_changed(0, 3, leader=1, isr=[1, 2], left=[3])
    log.isr_changed(600, 5, leader=2, isr=[2, 3], left=[1])

    assert led(log, "leader", "leader_epoch", "led_ms", "isr_changes") == [(1, 3, 600, 1), (2, 5, None, 1)]


def test_terms_of_one_partition_are_no_terms_of_another(log: Log) -> None:
    for at_ms, topic, partition in ((0, "t", 0), (10, "t", 1), (20, "u", 0)):
        log.leader_changed(at_ms, 0, topic=topic, partition=partition, leader=1, isr=[1])

    assert led(log, "topic", "partition", "led_ms") == [("t", 0, None), ("t", 1, None), ("u", 0, None)]


def test_moved_coordinator_has_group_count_and_load_time(spark: Any) -> None:
    first, second = Log(spark, group=None, broker=1), Log(spark, group=None, broker=2)
    offsets = {"topic": "__consumer_offsets", "partition": 7}
    first.leader_changed(0, 0, leader=1, isr=[1, 2], **offsets)
    second.leader_changed(900, 1, leader=2, previous_leader=1, isr=[2], **offsets)
    second.add(
        930, "coordinator_moved", partition=7, coordinator=2, previous_coordinator=1, coordinator_epoch=1, groups=4,
        load_ms=30,
    )  # fmt: skip
    changes = leadership(events_of(first.frame().union(second.frame())))

    assert rows_of(changes, "topic", "partition", "leader", "led_ms", "groups", "load_ms", order="led_from") == [
        ("__consumer_offsets", 7, 1, 900, None, None),
        ("__consumer_offsets", 7, 2, None, 4, 30),
    ]


def test_there_is_a_frame_for_every_table_even_of_no_events(spark: Any) -> None:
    none = spark.createDataFrame([], RECORDS)
    frames = tables_of(events_of(none), transaction_events_of(none), no_progress_ms=1000)
    assert tuple(frames) == TABLES
    assert all(frame.count() == 0 for frame in frames.values())
    spark.catalog.clearCache()
