"""Fetch sessions: §15.5."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.replication.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    TARGET_BYTES,
    FetchContext,
    FetchTarget,
)
from ottla.replication.fetch_session_cache import (
    CONSUMERS_BYTES_MAX,
    DETACHED_MS,
    EVICTION_MS,
    SESSION_BYTES_MAX,
    FetchSessionCache,
)

ZERO = bytes(16)


@dataclass
class SentData:
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    records: Any = b""
    diverging_epoch: Any = None
    preferred_read_replica: int = -1


WHOLE: dict[str, Any] = {"owner": "alice", "uses_topic_ids": False, "is_follower": False, "now_ms": 0}


def targets(*names: str, offset: int = 0) -> list[FetchTarget]:
    return [FetchTarget(name, ZERO, 0, fetch_offset=offset, max_bytes=100) for name in names]


def cache(slots: int = 10) -> FetchSessionCache:
    numbers = itertools.count(100)
    return FetchSessionCache(slots, lambda: next(numbers))


def sender() -> dict[str, Any]:
    """What a request says of who has sent it, on a connection of its own."""
    return {
        "connection": object(),
        "owner": "alice",
        "uses_topic_ids": False,
        "is_follower": False,
        "now_ms": 0,
    }


def begin(sessions: FetchSessionCache, session_id: int, epoch: int, *names: str, **fields: Any) -> FetchContext:
    fields = sender() | fields
    offset, forgotten = fields.pop("offset", 0), fields.pop("forgotten", ())
    return sessions.begin(session_id, epoch, targets(*names, offset=offset), forgotten, **fields)


def opened(sessions: FetchSessionCache, *names: str, now_ms: int = 0, **fields: Any) -> FetchContext:
    context = begin(sessions, 0, INITIAL_EPOCH, *names, now_ms=now_ms, **fields)
    context.answered([SentData() for _ in names], now_ms)
    return context


def topics(context: FetchContext) -> list[str]:
    return [target.topic for target in context.targets]


def test_a_full_fetch_without_a_session_is_answered_in_full() -> None:
    sessions = cache()

    context = begin(sessions, 0, FINAL_EPOCH, "a", "b")

    assert context.answered([SentData(), SentData()], 0) == [True, True]
    assert (context.session_id, len(sessions)) == (0, 0)


def test_session_keeps_its_partitions_and_sends_only_changes() -> None:
    sessions = cache()
    session_id = opened(sessions, "a", "b", "c", "d").session_id

    context = begin(sessions, session_id, 1)
    news = [SentData(), SentData(high_watermark=5), SentData(log_start_offset=2), SentData(error_code=3)]

    assert context.answered(news, 0) == [False, True, True, True]
    assert begin(sessions, session_id, 2).answered(news, 0) == [False, False, False, True], "errors are sent again"


def test_listed_partitions_are_added_and_forgotten_ones_go() -> None:
    sessions = cache()
    session_id = opened(sessions, "a", "b").session_id

    context = begin(sessions, session_id, 1, "b", "c", offset=7, forgotten=[("a", 0)])

    assert [(target.topic, target.fetch_offset) for target in context.targets] == [("b", 7), ("c", 7)]


def test_a_partition_that_got_data_goes_to_the_back() -> None:
    sessions = cache()
    session_id = opened(sessions, "a", "b", "c").session_id

    begin(sessions, session_id, 1).answered([SentData(records=b"x"), SentData(), SentData()], 0)

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
    renewed.answered([SentData()], 0)

    assert len(sessions) == 1
    assert renewed.session_id not in (0, first, second)


def test_a_session_without_partitions_closes() -> None:
    sessions = cache()
    session_id = opened(sessions, "a").session_id

    context = begin(sessions, session_id, 1, forgotten=[("a", 0)])

    assert (list(context.targets), context.session_id, len(sessions)) == ([], 0, 0)


def test_what_empties_its_session_is_answered_by_itself() -> None:
    """As Kafka: the partitions that a request names are fetched, also where it forgets them and nothing is left."""
    sessions = cache()
    session_id = opened(sessions, "a").session_id

    context = begin(sessions, session_id, 1, "a", offset=7, forgotten=[("a", 0)])

    assert [(target.topic, target.fetch_offset) for target in context.targets] == [("a", 7)]
    assert (context.session_id, context.is_incremental, len(sessions)) == (0, False, 0)


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
    begin(sessions, small, 1, now_ms=EVICTION_MS).answered([SentData()], EVICTION_MS)

    assert opened(sessions, "b", now_ms=EVICTION_MS + 1).session_id == 0, "as small"
    assert opened(sessions, "b", "c", now_ms=EVICTION_MS + 1).session_id != 0


def test_follower_session_displaces_a_consumer_never_the_reverse() -> None:
    sessions = cache(slots=1)
    opened(sessions, "a", "b", "c")

    assert opened(sessions, "a", is_follower=True).session_id != 0
    assert opened(sessions, "a", "b", "c", now_ms=1).session_id == 0


def test_high_watermark_is_sent_again_after_a_divergence() -> None:
    """A follower takes none from a response that asks it to truncate (§14.5.1)."""
    sessions = cache()
    session_id = opened(sessions, "a", is_follower=True).session_id
    begin(sessions, session_id, 1, is_follower=True).answered([SentData(high_watermark=5, diverging_epoch=(1, 2))], 0)

    context = begin(sessions, session_id, 2, is_follower=True)

    assert context.answered([SentData(high_watermark=5)], 0) == [True]


def test_a_followers_session_is_none_of_a_consumers() -> None:
    """T-25"""
    sessions = cache()
    session_id = opened(sessions, "a", is_follower=True).session_id

    assert begin(sessions, session_id, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def is_kept(sessions: FetchSessionCache, context: FetchContext) -> bool:
    """Asked with an epoch that is never expected, so that nothing changes."""
    return begin(sessions, context.session_id, EPOCH_MAX).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_resumes_on_another_connection() -> None:
    sessions = cache()
    context = opened(sessions, "a", connection="first")
    sessions.connection_lost("first", 0)

    resumed = begin(sessions, context.session_id, 1, connection="second", now_ms=DETACHED_MS - 1)

    assert resumed.answered([SentData()], 0) == [False]
    assert sessions.drop_detached(DETACHED_MS) is None
    assert is_kept(sessions, context)


def test_a_session_without_a_connection_is_dropped_after_a_time() -> None:
    sessions = cache()
    first, second = opened(sessions, "a", connection="first"), opened(sessions, "b", connection="second")
    assert sessions.connection_lost("first", 10)
    assert sessions.connection_lost("second", 20)
    assert not sessions.connection_lost("second", 30)

    assert sessions.drop_detached(DETACHED_MS + 10) == DETACHED_MS + 20

    assert (is_kept(sessions, first), is_kept(sessions, second)) == (False, True)
    assert sessions.drop_detached(DETACHED_MS + 20) is None
    assert (len(sessions), sessions.consumers_bytes) == (0, 0)


def test_a_connection_keeps_its_latest_session_alone() -> None:
    sessions = cache()
    older = opened(sessions, "a", connection="one")
    latest = opened(sessions, "b", connection="one")

    sessions.drop_detached(DETACHED_MS)

    assert (is_kept(sessions, older), is_kept(sessions, latest)) == (False, True)


def test_session_without_a_connection_is_evicted_first() -> None:
    sessions = cache(slots=2)
    detached, other = opened(sessions, "a", "b", connection="one"), opened(sessions, "a")
    sessions.connection_lost("one", 0)

    assert opened(sessions, "c", now_ms=1).session_id != 0

    assert (is_kept(sessions, detached), is_kept(sessions, other)) == (False, True)


def many(size_bytes: int) -> list[FetchTarget]:
    return [FetchTarget("t", ZERO, n, fetch_offset=0, max_bytes=1) for n in range(size_bytes // (TARGET_BYTES + 1))]


def opened_with(sessions: FetchSessionCache, size_bytes: int, **fields: Any) -> FetchContext:
    wanted = many(size_bytes)
    fields = sender() | fields
    context = sessions.begin(0, INITIAL_EPOCH, wanted, (), **fields)
    context.answered([SentData() for _ in wanted], fields["now_ms"])
    return context


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH, 1, 2])
def test_a_session_of_another_is_as_one_that_there_is_not(epoch: int) -> None:
    sessions = cache()
    session_id = opened(sessions, "a").session_id

    answers = [begin(sessions, number, epoch, owner="bob") for number in (session_id, session_id + 1)]

    assert [(each.error, list(each.targets)) for each in answers] == [(answers[0].error, [])] * 2
    assert (answers[0].error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND) == (epoch > 0)
    # On another connection too, as long as it is the same client.
    again = begin(sessions, session_id, 1, "a", connection=object())
    assert (again.error, again.session_id) == (ErrorCode.NONE, session_id)


def test_a_session_of_too_many_partitions_is_not_opened() -> None:
    sessions = cache()

    assert opened_with(sessions, SESSION_BYTES_MAX + 2 * TARGET_BYTES).session_id == 0
    assert opened_with(sessions, SESSION_BYTES_MAX).session_id != 0
    assert opened_with(sessions, SESSION_BYTES_MAX + 2 * TARGET_BYTES, is_follower=True).session_id != 0


def test_session_that_grows_too_large_ends_with_its_response() -> None:
    sessions = cache()
    session_id = opened(sessions, "a").session_id
    fields: Any = WHOLE | {"connection": 1}

    grown = sessions.begin(session_id, 1, many(SESSION_BYTES_MAX), (), **fields)

    assert (grown.error, grown.session_id) == (ErrorCode.NONE, session_id)
    assert all(grown.answered([SentData() for _ in grown.targets], 0)[1:])
    assert begin(sessions, session_id, 2).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.consumers_bytes == 0


def test_sessions_together_have_a_bound_of_memory() -> None:
    sessions = cache()
    kept = [opened_with(sessions, SESSION_BYTES_MAX, connection=number) for number in range(4)]

    assert opened_with(sessions, SESSION_BYTES_MAX).session_id == 0, "those that are used stay"
    sessions.connection_lost(2, 0)
    assert opened_with(sessions, SESSION_BYTES_MAX, connection="new").session_id != 0

    assert [is_kept(sessions, context) for context in kept] == [True, True, False, True]
    assert sessions.consumers_bytes <= CONSUMERS_BYTES_MAX


def test_an_unused_session_makes_room_for_the_memory_of_another() -> None:
    sessions = cache()
    kept = [opened_with(sessions, SESSION_BYTES_MAX) for _ in range(4)]

    assert opened_with(sessions, SESSION_BYTES_MAX, now_ms=EVICTION_MS + 1).session_id != 0

    assert [is_kept(sessions, context) for context in kept] == [False, True, True, True]


def test_forgotten_partitions_take_no_memory() -> None:
    sessions = cache()
    session_id = opened(sessions, "a", "b").session_id
    begin(sessions, session_id, 1, "c", forgotten=[("a", 0), ("b", 0), ("x", 0)])

    assert sessions.consumers_bytes == TARGET_BYTES + 1
