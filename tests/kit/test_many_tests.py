"""A long suite: the last tests cost what the first ones cost, and nothing is left of them (TK03).

A hundred and sixty tests here, a thousand in `make nightly`. Costs are processor time of the process, with the broker's
thread: the machine may have other things to do.
"""

import json
import os
from statistics import median

import pytest

from tests.shared.suites import ini, run

pytest_plugins = ("pytester",)

IS_WHOLE = "OTTLA_SUITE" in os.environ
TESTS = 1000 if IS_WHOLE else 160
PART = TESTS // 8
KIT_MS = 6
MORE_MAX = 1.2
CONFTEST = """
import json
import os
import threading
import time
from pathlib import Path

import pytest

notes = []

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    began = time.process_time()
    item.kit_s = 0
    done = yield
    whole = time.process_time() - began
    # The loop's pool has as many threads as were ever needed at the same time, up to its limit. Both loops name theirs.
    threads = [each for each in threading.enumerate() if not each.name.startswith(("asyncio_", "uvloop_"))]
    notes.append([whole * 1e3, item.kit_s * 1e3, len(os.listdir("/proc/self/fd")), len(threads)])
    return done

def kit(item):
    began = time.process_time()
    done = yield
    item.kit_s += time.process_time() - began
    return done

pytest_runtest_setup = pytest.hookimpl(wrapper=True)(kit)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    return (yield from kit(item))

def pytest_sessionfinish():
    Path("notes.json").write_text(json.dumps(notes))
"""
SUITE = f"""
import pytest
from confluent_kafka import Producer

@pytest.mark.parametrize("number", range({TESTS}))
def test_it(kafka, number):
    kafka.create_topic("orders", partitions=1)
    producer = Producer({{"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "log_level": 0}})
    producer.produce("orders", b"book")
    assert producer.flush(20) == 0
    assert [record.value for record in kafka.records("orders")] == [b"book"]
"""


@pytest.mark.timeout(1200)
def test_the_last_tests_are_like_the_first(pytester: pytest.Pytester) -> None:
    data = pytester.mkdir("data")
    ini(pytester, f"ottla_data = {data}", "ottla_leaks = ignore")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)

    run(pytester, "-q", "-p", "no:xdist").assert_outcomes(passed=TESTS)

    notes = json.loads((pytester.path / "notes.json").read_text())
    # The first ones import what is imported when it is needed.
    first, last = notes[PART : 2 * PART], notes[-PART:]
    whole, kit, descriptors, threads = (
        [[each[column] for each in part] for part in (first, last)] for column in range(4)
    )
    if IS_WHOLE:
        # By the clock, which says little while other tests run beside this one.
        assert median(whole[1]) <= MORE_MAX * median(whole[0])
        assert median(kit[1]) <= KIT_MS
    # Clients close by themselves, some after their test: what is left of one would be there in all that follow.
    assert min(descriptors[1]) <= min(descriptors[0])
    assert min(threads[1]) <= min(threads[0])
    assert list(data.iterdir()) == []
