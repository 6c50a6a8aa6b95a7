"""When the group coordinator of a testbed is loaded."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.members import consumer, polled

OFFSETS_TOPIC = "__consumer_offsets"
WITHOUT_GROUPS = """
import sys

from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed

bed = Testbed()
bed.start()
kafka = Kafka(bed)
kafka.create_topic("orders", partitions=1)
kafka.produce("orders", [b"book"])
assert [each.value for each in kafka.records("orders")] == [b"book"]
kafka.reset()
bed.stop()
print(sorted(name for name in sys.modules if name.startswith("ottla.coordinator.classic.group")))
"""


@pytest.fixture
def fresh_bed() -> Iterator[Testbed]:
    bed = Testbed(deadline=20)
    bed.start()
    yield bed
    bed.stop()


def test_test_without_groups_does_not_import_it() -> None:
    command = [sys.executable, "-c", WITHOUT_GROUPS]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_first_group_finds_it_at_once(fresh_bed: Testbed) -> None:
    kafka = Kafka(fresh_bed)
    assert fresh_bed.reader.image.topic(OFFSETS_TOPIC) is None
    kafka.produce("orders", [b"book"])

    with consumer(kafka, "shop", "orders") as shop:
        assert polled(shop, 1) == [b"book"]

    looked = [each for each in fresh_bed.wire.since(0) if each.api == "FindCoordinator"]
    assert looked
    assert {each.error for each in looked} == {0}


def test_group_that_no_client_has_used_gets_offsets(fresh_bed: Testbed) -> None:
    kafka = Kafka(fresh_bed)
    kafka.produce("orders", [b"book"])

    kafka.group("shop").set_offsets("orders", {0: 1})

    assert kafka.group("shop").offsets == {("orders", 0): 1}


def test_group_works_where_the_snapshot_is_older_than_all_groups(fresh_bed: Testbed) -> None:
    kafka = Kafka(fresh_bed)
    kafka.produce("orders", [b"book"])
    kafka.snapshot("without groups")
    with consumer(kafka, "shop", "orders") as shop:
        polled(shop, 1)
        shop.commit(asynchronous=False)

    for _ in range(2):
        kafka.restore("without groups")

        assert fresh_bed.reader.image.topic(OFFSETS_TOPIC) is None
        with consumer(kafka, "shop", "orders") as shop:
            assert polled(shop, 1) == [b"book"]


def test_first_group_begins_after_a_restore(fresh_bed: Testbed) -> None:
    kafka = Kafka(fresh_bed)
    kafka.snapshot("empty")
    kafka.restore("empty")
    kafka.produce("orders", [b"book"])

    with consumer(kafka, "shop", "orders") as shop:
        assert polled(shop, 1) == [b"book"]
