"""A replication quota: which replicas are throttled, and when their rate is exceeded."""

from ottla.replication.replication_quota import ReplicationQuota


def quota(bytes_per_s: int) -> ReplicationQuota:
    made = ReplicationQuota()
    made.bytes_per_s = bytes_per_s
    return made


def test_listed_partitions_and_no_others_are_throttled() -> None:
    made = quota(100)
    made.throttle("some", [1, 3])
    made.throttle_all("all")

    asked = [("some", 1), ("some", 2), ("all", 0), ("all", 99), ("none", 1)]
    assert [made.is_throttled(*each) for each in asked] == [True, False, True, True, False]
    assert made.is_active


def test_quota_is_idle_again_when_nothing_is_throttled() -> None:
    made = quota(100)
    made.throttle_all("t")

    made.throttle("t", [])

    assert (made.is_active, made.is_throttled("t", 0)) == (False, False)


def test_first_bytes_count_as_spread_over_one_sample() -> None:
    made = quota(100)
    made.record(100, 0)
    assert not made.is_exceeded(0)

    made.record(1, 0)
    assert made.is_exceeded(0)


def test_rate_falls_below_the_quota_as_time_passes() -> None:
    made = quota(100)
    made.record(500, 0)

    assert [made.is_exceeded(now_ms) for now_ms in (0, 4999, 5000)] == [True, True, False]


def test_bytes_leave_the_window_a_sample_at_a_time() -> None:
    """Much at first, and a little each second: after eleven seconds the first sample is gone."""
    made = quota(50)
    made.record(1000, 0)
    for second in range(1, 11):
        made.record(10, second * 1000)

    assert (made.is_exceeded(10_999), made.is_exceeded(11_000)) == (True, False)


def test_pause_longer_than_the_window_forgets_everything() -> None:
    made = quota(1)
    made.record(10_000, 0)

    assert (made.is_exceeded(10_999), made.is_exceeded(11_000)) == (True, False)


def test_quota_without_a_rate_is_never_exceeded() -> None:
    made = ReplicationQuota()
    made.throttle_all("t")
    made.record(2**40, 0)

    assert not made.is_exceeded(0)
