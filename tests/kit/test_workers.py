"""Totals of audit and coverage do not depend on workers and order (TK05), nor does what rules leave to chance.

The clients send the same bytes each time, so that each number can be compared. Real clients with four workers
are in test_suite_isolation.py.
"""

import json
import os
from pathlib import Path

import pytest

from tests.audit.suites import ini

pytest_plugins = ("pytester",)

IS_WHOLE = "OTTLA_SUITE" in os.environ
TESTS, RUNS = (400, 20) if IS_WHOLE else (60, 1)
ROOT = Path(__file__).parents[2]
# The topic of offsets is there before the first request that is counted.
SEED = {
    "topics": {"stock": {"partitions": 1, "records": [{"value": "book"}]}},
    "groups": {"seeded": {"offsets": {"stock": {"0": 1}}}},
}
SUITE = """
import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.audit.workload import Client, produce, records

def join(client, group):
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    member_id = ""
    for _ in range(2):
        joined = client.call(JoinGroupRequest(group_id=group, member_id=member_id, protocol_type="other",
            protocols=protocols, session_timeout_ms=30_000, rebalance_timeout_ms=30_000))
        member_id = joined.member_id
    assert joined.error_code == 0
    generation = joined.generation_id
    assert client.call(SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id)).error_code == 0
    return member_id

def hang_up(kafka, client, request):
    client.send_and_hang_up(request)
    kafka.wait(lambda kafka: not kafka._bed.reader.connections(), describe="the connection is gone")

@pytest.mark.parametrize("number", range(TESTS))
def test_it(kafka, kafka_topic, kafka_group, number):
    topic, client = kafka_topic(partitions=1), Client(kafka.bootstrap, "suite")
    if number % 2:
        chance = (1 + number % 9) / 10
        kafka.fault(api="Produce", topic=topic, probability=chance, times=9, do={"error": "NOT_LEADER_OR_FOLLOWER"})
    for turn in range(4 + number % 3):
        client.call(produce(topic, 0, records([b"%d" % turn])))
    if number % 3 == 0:
        group = kafka_group()
        member_id = join(client, group)
        client.call(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)]))
    client.close()
    if number % 8 == 0:
        # Its answer is lost: the repetition doubles the record, which the audit says.
        batch = records([b"doubled"])
        hang_up(kafka, client, produce(topic, 0, bytes(batch)))
        client.call(produce(topic, 0, bytes(batch)))
        client.close()
    kafka.wait(lambda kafka: not kafka._bed.reader.connections(), describe="connections close")
"""
SHUFFLE = """
import random

def pytest_collection_modifyitems(items):
    random.Random({seed}).shuffle(items)
"""
# KT-22: all rules draw from one generator.
SHARED = """
import random
from ottla.testing.faults.state import FaultState

shared, reset = random.Random(14), FaultState.reset

def reset_and_share(self):
    reset(self)
    self.random = shared

FaultState.reset = reset_and_share
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    (pytester.path / "seed.json").write_text(json.dumps(SEED))
    ini(pytester, "ottla_seed_file = seed.json", f"pythonpath = {ROOT}", "ottla_unused_faults = ignore")
    pytester.makepyfile(SUITE.replace("TESTS", str(TESTS)))
    return pytester


def totals(suite: pytest.Pytester, *arguments: str) -> tuple[dict[str, object], list[str]]:
    """What --ottla-coverage has written, and what the audit has found."""
    command = ("-p", "no:cacheprovider", "-q", "--ottla-coverage=counted.json", "--ottla-seed=14", *arguments)

    result = suite.runpytest_subprocess(*command, timeout=600)

    result.assert_outcomes(passed=TESTS)
    counted: dict[str, object] = json.loads((suite.path / "counted.json").read_text())
    return counted, [line for line in result.stdout.lines if line.startswith("ottla: audit:")]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", [2, 4])
def test_workers_count_what_one_process_counts(suite: pytest.Pytester, workers: int) -> None:
    """TK05, and KT-22: each test's rules draw the same, whatever ran before it."""
    counted, audited = totals(suite)
    doubled = len(range(0, TESTS, 8))
    assert audited == [f"ottla: audit: {doubled} P1 in {doubled} tests"]
    assert counted["injected"]

    for seed in range(RUNS):
        suite.makeconftest(SHUFFLE.format(seed=seed))
        assert totals(suite, "-n", str(workers)) == (counted, audited)


@pytest.mark.timeout(3600)
def test_generator_that_all_rules_share_is_found(suite: pytest.Pytester) -> None:
    """KT-22, seeded: the order of the tests changes what is injected."""
    suite.makeconftest(SHARED)
    counted, _ = totals(suite)

    suite.makeconftest(SHARED + SHUFFLE.format(seed=1))
    shuffled, _ = totals(suite)

    assert shuffled["injected"] != counted["injected"]
