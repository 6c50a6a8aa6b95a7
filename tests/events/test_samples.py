"""Commits summed up, lag sampled."""

import pytest

from ottla.broker.events.broker_facts import CommitsSummedUp, LagSampled
from ottla.broker.events.samples import Commits, LagSamples
from ottla.coordinator.durable_state import LoggedOffset
from ottla.coordinator.facts import OffsetsCommitted
from ottla.coordinator.records import CommittedOffset


def logged(offset: int, *, is_transactional: bool = False) -> LoggedOffset:
    return LoggedOffset(CommittedOffset(offset, -1, "", 0, None), 0, is_transactional)


def test_commits_are_summed_up_by_member() -> None:
    commits = Commits(most=10)
    for member, partitions in [("a", 1), ("b", 2), ("a", 3)]:
        commits.add(OffsetsCommitted(group_id="g", member_id=member, partitions=partitions))

    assert commits.take() == [
        CommitsSummedUp(group_id="g", member_id="a", commits=2, partitions=4),
        CommitsSummedUp(group_id="g", member_id="b", commits=1, partitions=2),
    ]
    assert commits.take() == []


def test_commits_beyond_the_members_counted_are_lost() -> None:
    commits = Commits(most=1)
    for member in "aabc":
        commits.add(OffsetsCommitted(group_id="g", member_id=member, partitions=1))

    assert commits.lost == 2
    assert len(commits.take()) == 1


def test_lag_is_sampled_by_group_and_topic_in_partition_order() -> None:
    offsets = {("t", 1): 5, ("u", 0): 9, ("t", 0): 7, ("ottla.events", 0): 3}
    groups = [("g", True, {key: logged(offset) for key, offset in offsets.items()})]
    ends = {("t", 0): 10, ("u", 0): 9}

    assert LagSamples().sample(groups, lambda topic, partition, _: ends.get((topic, partition))) == [
        LagSampled(group_id="g", topic="t", partition=(0, 1), committed=(7, 5), end=(10, None)),
        LagSampled(group_id="g", topic="u", partition=(0,), committed=(9,), end=(9,)),
    ]


@pytest.mark.parametrize(
    ("has_members", "committed", "again"),
    [(False, 5, False), (True, 9, False), (True, 5, True)],
    ids=["without members", "without lag", "with members that are behind"],
)
def test_unchanged_lag_is_sampled_again_where_members_lag(has_members: bool, committed: int, again: bool) -> None:
    samples = LagSamples()
    group = ("g", has_members, {("t", 0): logged(committed)})
    first, second = (samples.sample([group], lambda *_: 9) for _ in range(2))

    assert (len(first), bool(second)) == (1, again)


def test_lag_that_changes_is_sampled_without_members_too() -> None:
    samples = LagSamples()
    ends = iter([9, 9, 10])
    counts = [len(samples.sample([("g", False, {("t", 0): logged(9)})], lambda *_: next(ends))) for _ in range(3)]

    assert counts == [1, 0, 1]


def test_end_is_asked_for_as_the_offset_was_committed() -> None:
    offsets = {("t", 0): logged(3), ("t", 1): logged(3, is_transactional=True)}

    (fact,) = LagSamples().sample([("g", True, offsets)], lambda _, __, each: 5 if each.is_transactional else 8)

    assert (fact.partition, fact.end) == ((0, 1), (8, 5))
