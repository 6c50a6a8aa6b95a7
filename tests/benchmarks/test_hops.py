"""The counts of calls are worth something only if nothing but the code changes them."""

from benchmarks.hops import measure


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
