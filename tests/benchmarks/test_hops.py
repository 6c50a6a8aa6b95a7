"""The counts of calls are worth something only if nothing but the code changes them, and if they are bounded."""

from benchmarks.hops import CALLS_MAX, measure


def test_calls_of_the_data_paths_are_the_same_in_each_run() -> None:
    first, second = measure(), measure()

    assert first == second
    assert [each.name for each in first] == [
        "Produce, acks=all",
        "JoinGroup, first of two",
        "JoinGroup, second of two",
        "Truncation, the follower",
        "Truncation, the new leader",
    ]
    assert all(each.count >= len(each.by_file()) > 0 for each in first)


def test_data_paths_are_within_their_bounds() -> None:
    over = {each.name: each.count for each in measure() if each.count > CALLS_MAX[each.name]}
    assert not over
