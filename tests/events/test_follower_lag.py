"""Samples of followers that are behind, until they are not."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.events.broker_facts import FollowerLagSampled
from ottla.broker.events.follower_lag import FollowerLag


def led(topic: str, index: int, end: int, followers: dict[int, int], isr: tuple[int, ...]) -> Any:
    """What a sample looks at of a partition; the followers' log end offsets by broker."""
    progress = {node_id: SimpleNamespace(log_end_offset=offset) for node_id, offset in followers.items()}
    return SimpleNamespace(
        topic=topic,
        index=index,
        isr=isr,
        log=SimpleNamespace(log_end_offset=end),
        leadership=SimpleNamespace(followers=progress),
    )


def test_a_follower_that_is_behind_is_sampled_by_topic() -> None:
    partitions = [
        led("t", 1, end=10, followers={2: 7, 3: 10}, isr=(1, 3)),
        led("t", 0, end=10, followers={2: 9, 3: 10}, isr=(1, 2, 3)),
        led("u", 0, end=10, followers={2: -1, 3: 4}, isr=(1,)),
    ]

    assert FollowerLag().sample(partitions) == [
        FollowerLagSampled(topic="t", follower=2, partition=(0, 1), lag=(1, 3), in_sync=(True, False)),
        FollowerLagSampled(topic="u", follower=2, partition=(0,), lag=(None,), in_sync=(False,)),
        FollowerLagSampled(topic="u", follower=3, partition=(0,), lag=(6,), in_sync=(False,)),
    ]


def test_a_follower_that_has_caught_up_is_sampled_once_more() -> None:
    lag = FollowerLag()
    samples = [lag.sample([led("t", 0, end=10, followers={2: offset}, isr=(1, 2))]) for offset in (10, 7, 10, 10)]

    assert [[fact.lag for fact in sample] for sample in samples] == [[], [(3,)], [(0,)], []]


def test_follower_with_everything_but_out_of_sync_is_sampled() -> None:
    (fact,) = FollowerLag().sample([led("t", 0, end=10, followers={2: 10}, isr=(1,))])
    assert (fact.lag, fact.in_sync) == ((0,), (False,))


def test_events_topic_and_other_leaders_partitions_are_left_out() -> None:
    followed = SimpleNamespace(topic="t", index=0, leadership=None)
    assert FollowerLag().sample([led("ottla.events", 0, end=9, followers={2: 0}, isr=(1,)), followed]) == []
