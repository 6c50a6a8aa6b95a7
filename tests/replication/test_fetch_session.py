"""Fetch sessions: §15.5."""

import itertools
from dataclasses import dataclass
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.replication.fetch_session import (
    EPOCH_MAX,
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchSessionCache,
    FetchTarget,
)

ZERO = bytes(16)


@dataclass
class Told:
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    records: Any = b""
    diverging_epoch: Any = None
    preferred_read_replica: int = -1


def targets(*names: str, offset: int = 0) -> list[FetchTarget]:
    return [FetchTarget(name, ZERO, 0, fetch_offset=offset, max_bytes=100) for name in names]


def cache(slots: int = 10) -> FetchSessionCache:
    numbers = itertools.count(100)
    return FetchSessionCache(slots, lambda: next(numbers))


def begin(sessions: FetchSessionCache, session_id: int, epoch: int, *names: str, **fields: Any) -> FetchContext:
    fields = {"forgotten": (), "uses_topic_ids": False, "is_follower": False, "now_ms": 0} | fields
    offset = fields.pop("offset", 0)
    return sessions.begin(session_id, epoch, targets(*names, offset=offset), fields.pop("forgotten"), **fields)


def opened(sessions: FetchSessionCache, *names: str, now_ms: int = 0, is_follower: bool = False) -> FetchContext:
    context = begin(sessions, 0, INITIAL_EPOCH, *names, is_follower=is_follower, now_ms=now_ms)
    context.answered([Told() for _ in names], now_ms)
    return context


def topics(context: FetchContext) -> list[str]:
    return [target.topic for target in context.targets]


def test_a_full_fetch_without_a_session_is_answered_in_full() -> None:
    sessions = cache()

    context = begin(sessions, 0, FINAL_EPOCH, "a", "b")

    assert context.answered([Told(), Told()], 0) == [True, True]
    assert (context.session_id, len(sessions)) == (0, 0)


def test_a_session_remembers_its_partitions_and_tells_only_news() -> None:
    sessions = cache()
    session_id = opened(sessions, "a", "b", "c", "d").session_id

    context = begin(sessions, session_id, 1)
    news = [Told(), Told(high_watermark=5), Told(log_start_offset=2), Told(error_code=3)]

    assert context.answered(news, 0) == [False, True, True, True]
    assert begin(sessions, session_id, 2).answered(news, 0) == [False, False, False, True], "errors are told again"


def test_listed_partitions_are_added_or_moved_and_forgotten_ones_go() -> None:
    sessions = cache()
    session_id = opened(sessions, "a", "b").session_id

    context = begin(sessions, session_id, 1, "b", "c", offset=7, forgotten=[("a", 0)])

    assert [(target.topic, target.fetch_offset) for target in context.targets] == [("b", 7), ("c", 7)]


def test_a_partition_that_got_data_goes_to_the_back() -> None:
    sessions = cache()
    session_id = opened(sessions, "a", "b", "c").session_id

    begin(sessions, session_id, 1).answered([Told(records=b"x"), Told(), Told()], 0)

    assert topics(begin(sessions, session_id, 2)) == ["b", "c", "a"]


def test_a_wrong_epoch_or_id_is_refused() -> None:
    sessions = cache()
    session_id = opened(sessions, "a").session_id

    assert begin(sessions, session_id, 2).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(sessions, 999, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(sessions, session_id, 1, uses_topic_ids=True).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert begin(sessions, session_id, 1).error is ErrorCode.NONE
    assert begin(sessions, session_id, 1).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_after_the_largest_is_1() -> None:
    sessions = cache()
    context = opened(sessions, "a")
    assert context.session is not None
    context.session.epoch = EPOCH_MAX

    begin(sessions, context.session_id, EPOCH_MAX)

    assert begin(sessions, context.session_id, 1).error is ErrorCode.NONE


def test_a_final_or_a_new_full_fetch_closes_the_session() -> None:
    sessions = cache()
    first, second = opened(sessions, "a").session_id, opened(sessions, "b").session_id

    begin(sessions, first, FINAL_EPOCH, "a")
    renewed = begin(sessions, second, INITIAL_EPOCH, "b")
    renewed.answered([Told()], 0)

    assert len(sessions) == 1
    assert renewed.session_id not in (0, first, second)


def test_a_session_without_partitions_closes() -> None:
    sessions = cache()
    session_id = opened(sessions, "a").session_id

    context = begin(sessions, session_id, 1, forgotten=[("a", 0)])

    assert (context.targets, context.session_id, len(sessions)) == ((), 0, 0)


def test_without_a_slot_the_client_gets_no_session() -> None:
    assert opened(cache(slots=0), "a").session_id == 0
    sessions = cache(slots=1)
    opened(sessions, "a")
    assert opened(sessions, "b", now_ms=EVICTION_MS).session_id == 0


def test_a_session_that_was_not_used_for_long_gives_way() -> None:
    sessions = cache(slots=1)
    old = opened(sessions, "a").session_id

    young = opened(sessions, "b", now_ms=EVICTION_MS + 1).session_id

    assert young != 0
    assert begin(sessions, old, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_larger_session_displaces_an_older_smaller_one() -> None:
    sessions = cache(slots=1)
    small = opened(sessions, "a").session_id
    begin(sessions, small, 1, now_ms=EVICTION_MS).answered([Told()], EVICTION_MS)

    assert opened(sessions, "b", now_ms=EVICTION_MS + 1).session_id == 0, "as small"
    assert opened(sessions, "b", "c", now_ms=EVICTION_MS + 1).session_id != 0


def test_a_follower_displaces_a_consumer_at_once_and_never_the_reverse() -> None:
    sessions = cache(slots=1)
    opened(sessions, "a", "b", "c")

    assert opened(sessions, "a", is_follower=True).session_id != 0
    assert opened(sessions, "a", "b", "c", now_ms=1).session_id == 0


def test_a_high_watermark_is_told_again_after_a_divergence() -> None:
    """A follower takes none from an answer that tells it to truncate (§14.5.1)."""
    sessions = cache()
    session_id = opened(sessions, "a", is_follower=True).session_id
    begin(sessions, session_id, 1, is_follower=True).answered([Told(high_watermark=5, diverging_epoch=(1, 2))], 0)

    context = begin(sessions, session_id, 2, is_follower=True)

    assert context.answered([Told(high_watermark=5)], 0) == [True]


def test_a_followers_session_is_none_of_a_consumers() -> None:
    """T-25"""
    sessions = cache()
    session_id = opened(sessions, "a", is_follower=True).session_id

    assert begin(sessions, session_id, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
