"""Responses about thousands of members, groups or partitions are built in slices."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.handlers import describe_groups, join_group, leave_group, list_groups, offset_fetch
from ottla.broker.runtime import ITEMS_PER_SLICE, in_slices, now_or_later
from ottla.coordinator.events import FetchOffsets
from ottla.coordinator.results import (
    DescribedMember,
    DescribeResult,
    FetchedOffset,
    FetchResult,
    JoinedMember,
    JoinResult,
    LeaveResult,
    LeftMember,
    ListedGroup,
    ListResult,
)
from ottla.protocol.errors import ErrorCode
from tests.broker.test_small_steps import most_in_a_step

COUNT = 3 * ITEMS_PER_SLICE
OK = ErrorCode.NONE


def described() -> Coroutine[Any, Any, Any]:
    """Groups that are small, but many."""
    member = DescribedMember("m", None, "c", "/h", b"", b"", 1, 1, ())
    return describe_groups._response([DescribeResult(OK, "g", members=(member,) * 3)] * (COUNT // 3), 5, 0)


def left() -> Coroutine[Any, Any, Any]:
    return leave_group._response(LeaveResult(OK, (LeftMember("m", None, OK),) * COUNT), 3)


def joined() -> Coroutine[Any, Any, Any]:
    members = (JoinedMember("m", None, b""),) * COUNT
    building: Any = join_group._response(JoinResult(OK, "m", 1, "consumer", "range", "m", members), 5)
    return building  # type: ignore[no-any-return]


def listed() -> Coroutine[Any, Any, Any]:
    return list_groups._response(ListResult(OK, (ListedGroup("g", "consumer", "Stable", "classic"),) * COUNT))


def fetched_of_one_group() -> Coroutine[Any, Any, Any]:
    result = FetchResult(OK, tuple(FetchedOffset("t", index) for index in range(COUNT)))
    return offset_fetch._respond([FetchOffsets(1, "g", None)], 5, [result])


def fetched_of_many_groups() -> Coroutine[Any, Any, Any]:
    events = [FetchOffsets(number, f"g{number}", None) for number in range(COUNT // 2)]
    return offset_fetch._respond(events, 8, [FetchResult(OK, (FetchedOffset("t", 0),) * 2)] * len(events))


@pytest.mark.parametrize(
    ("response", "module", "part"),
    [
        (described, describe_groups, "DescribedGroupMember"),
        (described, describe_groups, "DescribedGroup"),
        (joined, join_group, "JoinGroupResponseMember"),
        (left, leave_group, "MemberResponse"),
        (listed, list_groups, "ListedGroup"),
        (fetched_of_one_group, offset_fetch, "OffsetFetchResponsePartition"),
        (fetched_of_many_groups, offset_fetch, "OffsetFetchResponsePartitions"),
    ],
)
def test_a_large_response_is_built_in_slices(
    response: Callable[[], Coroutine[Any, Any, Any]], module: Any, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    make = getattr(module, part)

    def counting(**fields: Any) -> Any:
        built.append(make(**fields))
        return built[-1]

    monkeypatch.setattr(module, part, counting)
    most = most_in_a_step(response(), lambda: len(built))

    assert len(built) in (COUNT, COUNT // 3)
    assert most <= ITEMS_PER_SLICE + 2


@pytest.mark.parametrize("error", [OK, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize("version", [1, 5, 8])
def test_offsets_are_the_same_in_slices(version: int, error: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [FetchOffsets(number, f"g{number}", (("t", (0, 1)), ("empty", ()))) for number in range(2)]
    events = [*named, FetchOffsets(2, "all", None)][: 3 if version >= 8 else 1]
    known = FetchResult(OK, (FetchedOffset("t", 0, 7, 1, "m"), FetchedOffset("t", 1), FetchedOffset("other", 0, 3)))
    results = [FetchResult(error) if error else known] * len(events)
    at_once = offset_fetch._respond(events, version, results)

    in_slices_of_one: list[Any] = []
    monkeypatch.setattr(offset_fetch, "ITEMS_PER_SLICE", 1)
    most_in_a_step(answered(offset_fetch._response_in_slices(events, version, results), in_slices_of_one), lambda: 0)

    assert in_slices_of_one == [at_once]


async def answered(response: Coroutine[Any, Any, Any], answers: list[Any]) -> None:
    answers.append(await response)


async def doubled(count: int) -> list[int]:
    return await in_slices(lambda number: 2 * number, range(count))


def test_what_is_one_slice_is_there_now() -> None:
    assert now_or_later(doubled(ITEMS_PER_SLICE), ITEMS_PER_SLICE) == [2 * number for number in range(ITEMS_PER_SLICE)]


def test_what_is_more_than_a_slice_comes_later() -> None:
    later: Any = now_or_later(doubled(COUNT), COUNT)

    assert most_in_a_step(later, lambda: 0) == 0
