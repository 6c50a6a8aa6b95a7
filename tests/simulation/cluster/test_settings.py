"""Settings that are altered in flight, and what the judge says of brokers that do not obey them (I-39)."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cluster.store import Changes, Entry, Snapshot
from ottla.storage.log_config import LogConfig
from tests.simulation.cluster.judge import ClusterJudge
from tests.simulation.cluster.obedience import Obedience
from tests.simulation.cluster.setting_choices import COMPACTED, NOT_COMPACTED, choices_of
from tests.simulation.cluster.settings import DEFAULTS_KEY, SETTINGS, defaults_after, in_force
from tests.simulation.cluster.settings_admin import Alteration, SettingsBook, taken_back
from tests.simulation.trace import Trace

MIN_ISR = SETTINGS["min.insync.replicas"]


@pytest.mark.parametrize(
    ("own", "defaults", "static", "expected"),
    [
        ({"min.insync.replicas": "3"}, {"min.insync.replicas": "2"}, {"min.insync.replicas": "1"}, 3),
        ({}, {"min.insync.replicas": "2"}, {"min.insync.replicas": "1"}, 2),
        ({}, {}, {"min.insync.replicas": "3"}, 3),
        ({}, {}, {}, 1),
    ],
    ids=["of-the-topic", "of-all-brokers", "of-the-start", "kafkas"],
)
def test_the_nearest_value_is_in_force(own, defaults, static, expected):
    assert in_force(MIN_ISR, own, defaults, static) == expected


def test_values_are_those_of_a_log_without_any():
    assert all(in_force(each, {}, {}, {}) == getattr(LogConfig(), each.attribute) for each in SETTINGS.values())


ENTRY = Entry(DEFAULTS_KEY, b'{"min.insync.replicas":"3"}', 8)
OTHER = Entry("brokers/1", b"{}", 8)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Snapshot([ENTRY], 8), {"min.insync.replicas": "3"}),
        (Snapshot([OTHER], 8), {}),
        (Changes(8, (OTHER, ENTRY), ()), {"min.insync.replicas": "3"}),
        (Changes(8, (), (DEFAULTS_KEY,)), {}),
        (Changes(8, (OTHER,), ()), {"before": "1"}),
    ],
    ids=["all-there-is", "nothing-of-it", "changed", "deleted", "of-others"],
)
def test_defaults_are_those_of_the_store(event, expected):
    assert defaults_after({"before": "1"}, event) == expected


def book_after(*asked: tuple[str, str | None, bool]) -> SettingsBook:
    """Of one setting of topic t: a value, and whether the alteration to it was answered."""
    book = SettingsBook(of_others=())
    for name, value, is_answered in asked:
        alteration = Alteration("t", {name: value})
        book.ask(alteration)
        (book.answered if is_answered else book.lost)(alteration)
    return book


@pytest.mark.parametrize(
    ("asked", "found", "is_wrong"),
    [
        ([("a", "1", True)], {"a": "1"}, False),
        ([("a", "1", True)], {}, True),
        ([("a", "1", True), ("a", None, True)], {"a": "1"}, True),
        ([("a", "1", False), ("a", "2", True)], {"a": "1"}, False),
        ([("a", "1", False), ("a", "2", True)], {"a": "3"}, True),
        ([("a", "1", False)], {"a": "3"}, False),
    ],
    ids=["is-so", "is-not", "not-deleted", "lost-and-carried-out-late", "neither", "never-answered"],
)
def test_what_was_acknowledged_has_to_be_committed(asked, found, is_wrong):
    assert bool(book_after(*asked).wrong("t", found)) is is_wrong


@pytest.mark.parametrize(
    ("in_sync", "risen_to", "violated"),
    [(2, 8, ["I-39"]), (2, 5, []), (3, 8, [])],
    ids=["risen-with-two", "held-back-with-two", "risen-with-three"],
)
def test_commits_below_the_minimum_are_violations(in_sync, risen_to, violated):
    judge = ClusterJudge(Trace(lambda: 0))
    topic = SimpleNamespace(topic_id=b"t", configs={"min.insync.replicas": "3"})
    image = SimpleNamespace(revision=7, topic=lambda _: topic)
    truth: Any = SimpleNamespace(defaults_at=lambda _: {})
    broker = SimpleNamespace(metadata=SimpleNamespace(image=image))
    leader = Leader(isr=(1, 2, 3)[:in_sync])
    obedience = Obedience(judge, truth, {})

    obedience.check_commits("broker 1", broker, leader)
    leader.high_watermark = risen_to
    obedience.check_commits("broker 1", broker, leader)

    assert [each.partition(":")[0] for each in judge.violations] == violated


class Leader:
    topic, index, topic_id, leader_epoch, replicas = "t", 0, b"t", 4, (1, 2, 3)
    high_watermark = 5
    log = SimpleNamespace(log_end_offset=9)

    def __init__(self, isr: tuple[int, ...]) -> None:
        self.isr = isr


def test_what_keeps_producers_from_writing_is_taken_back():
    assert taken_back({"max.message.bytes": "85"}) == {"max.message.bytes": None}
    assert taken_back(COMPACTED) == dict.fromkeys(COMPACTED)
    assert taken_back(NOT_COMPACTED) == taken_back({"retention.bytes": "1500"}) == {}


@pytest.mark.parametrize(("faults", "smallest"), [({"power"}, "2"), ({"cut"}, "1")], ids=["power", "cut"])
def test_minimum_is_not_lowered_where_disks_lose_records(faults, smallest):
    plan: Any = SimpleNamespace(min_isr=2, blackouts=False, faults=faults, compacts=False)
    drawn = {values.get("min.insync.replicas") for choices in choices_of("", plan) for values in choices}

    assert min(drawn - {None}) == smallest
