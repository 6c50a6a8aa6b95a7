"""What docs/migration.md writes in place of other ways to test can be written so."""

import re
from collections.abc import Iterator

import pytest

from ottla.testing.faults import Call
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.docs.references import ROOT
from tests.kit.clusters import three_brokers

TEXT = (ROOT / "docs" / "migration.md").read_text()
CODE = re.findall(r"`((?:kafka\.\w|@pytest\.mark)[^`]*)`", TEXT)
MARKS = [each for each in CODE if each.startswith("@")]
CALLS = [each for each in CODE if each.startswith("kafka.") and each != "kafka.bootstrap"]
RULES = [each for each in CALLS if each.startswith("kafka.fault(")]

OTHERS = [each for each in CALLS if each not in RULES]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    bed = three_brokers()
    yield bed
    bed.stop()


@pytest.fixture
def kafka(bed: Testbed) -> Iterator[Kafka]:
    yield Kafka(bed)
    bed.run(bed.reset())


def test_the_page_has_a_row_for_each_way() -> None:
    assert len(RULES) >= 14
    for tool in ("Testcontainers", "pytest-kafka", "pytest-docker", "mockafka", "librdkafka", "kfake", "Toxiproxy"):
        assert tool in TEXT


@pytest.mark.parametrize("code", RULES)
def test_rules_are_rules(kafka: Kafka, code: str) -> None:
    async def function(request: object, proceed: object) -> None:
        del request, proceed

    rule = eval(code, {"kafka": kafka, "Call": Call, "function": function})

    assert [each.id for each in kafka.faults] == [rule.id]


@pytest.mark.parametrize("code", OTHERS)
def test_calls_do_something(kafka: Kafka, code: str) -> None:
    """On three brokers with a topic; the group has no members, so it is empty and not stable."""
    kafka.create_topic("orders", partitions=1)
    if "wait_until_stable" in code:
        code = code.replace("wait_until_stable()", "wait_until_empty()")
    if "restart" in code:
        kafka.brokers[0].kill()

    eval(code, {"kafka": kafka})
