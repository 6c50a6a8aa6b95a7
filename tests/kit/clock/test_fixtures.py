"""The fixture `kafka_clock` and the marker's `clock`, by pytest's own pytester."""

import pytest

from tests.kit.test_plugin import run

pytest_plugins = ("pytester",)


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def test_clock_is_frozen_for_a_test_and_right_for_the_next(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from datetime import datetime, timedelta, UTC
        import pytest

        def is_right(clock):
            first, second = clock.now(), clock.now()
            while second == first:
                second = clock.now()
            return abs(second - datetime.now(UTC)) < timedelta(minutes=1)

        def test_fixture(kafka, kafka_clock):
            at = kafka_clock.now()
            kafka_clock.advance("8d")
            assert kafka.clock.now() == at + timedelta(days=8)

        def test_next(kafka):
            assert is_right(kafka.clock)

        @pytest.mark.kafka(clock=datetime(2030, 5, 6, tzinfo=UTC))
        def test_moment(kafka):
            assert kafka.clock.now() == datetime(2030, 5, 6, tzinfo=UTC)

        @pytest.mark.kafka(clock="frozen", topics={"orders": 1})
        async def test_frozen(kafka_async, kafka):
            assert await kafka_async.clock.now() == kafka.clock.now()
            assert kafka.topics == ["orders"]

        @pytest.mark.kafka(clock="real")
        def test_last(kafka):
            assert is_right(kafka.clock)
        """
    )

    run(suite).assert_outcomes(passed=5)


def test_failure_shows_how_the_clock_was_moved(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        def test_moved(kafka_clock):
            kafka_clock.advance("8d")
            assert False

        def test_not_moved(kafka):
            assert False

        @pytest.mark.kafka(clock="noon")
        def test_marker(kafka):
            pass
        """
    )

    result = run(suite)

    result.assert_outcomes(failed=2, errors=1)
    shown = result.stdout.str()
    assert shown.count("ottla: clock") == 1
    assert "frozen, 8 d ahead of the machine's" in shown
    assert "advanced by 8 d, " in shown
    assert "clock='noon': expected one of real, frozen, or a datetime" in shown
