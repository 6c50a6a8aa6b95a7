"""What the releases of Apache Kafka serve: the table, held against what Maven has of them, and what differs by it."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.server.apis import APIS
from ottla.testing.kafka_releases import (
    RELEASES,
    difference_line,
    differences,
    missing_errors,
    release_of,
    served_versions,
)

JARS = Path.home() / ".m2/repository/org/apache/kafka/kafka-clients"
OF_BROKERS = {"broker", "zkBroker"}
USED = {
    "apis": {
        "Fetch v17 by a 1": 3,
        "Fetch v17 by b 2": 1,
        "Fetch v4 by a 1": 1,
        "DescribeTopicPartitions v0 by a 1": 1,
    },
    "errors": {"Produce TRANSACTION_ABORTABLE": 1, "Produce NOT_LEADER_OR_FOLLOWER": 1},
}


def test_differences_say_what_the_release_has() -> None:
    assert differences(USED, "3.7") == [
        "DescribeTopicPartitions v0 by a 1: Kafka 3.7 does not have it",
        "Fetch v17 by a 1: Kafka 3.7 has v0 to v16",
        "Fetch v17 by b 2: Kafka 3.7 has v0 to v16",
        "Produce TRANSACTION_ABORTABLE: Kafka 3.7 has no such error",
    ]
    assert difference_line(USED, "3.7") == (
        "2 of 3 versions of APIs and 1 errors are not those of Kafka 3.7: "
        "DescribeTopicPartitions v0 (does not have it), Fetch v17 (has v0 to v16), Produce TRANSACTION_ABORTABLE"
    )
    assert difference_line(USED, "4.1") == "0 of 3 versions of APIs and 0 errors are not those of Kafka 4.1"


def test_versions_that_a_release_has_dropped_differ() -> None:
    used = {"apis": {"ListOffsets v0 by a 1": 1, "Produce v2 by a 1": 1}, "errors": {}}

    assert differences(used, "4.0") == [
        "ListOffsets v0 by a 1: Kafka 4.0 has v1 to v10",
        "Produce v2 by a 1: Kafka 4.0 has v3 to v12",
    ]
    assert differences(used, "3.9") == []


@pytest.mark.parametrize("text", ["3.7", "3.7.2", "3.7.0"])
def test_patch_releases_are_their_release(text: str) -> None:
    assert release_of(text) == "3.7"


@pytest.mark.parametrize("text", ["", "3", "2.8", "4.2", "3.7.x", "v3.7", "9.9.9"])
def test_unknown_release_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no release of Kafka that is known here: 3\.0 to 4\.1"):
        release_of(text)


def test_last_release_has_what_this_broker_claims() -> None:
    for api in APIS.values():
        served = served_versions(api.name, RELEASES[-1])
        assert served is not None, api.name
        assert api.lowest_advertised in served or api.lowest_advertised < served[0]
    assert missing_errors(RELEASES[-1]) == frozenset()


def jars() -> Iterator[tuple[str, Path]]:
    for path in sorted(JARS.glob("*/kafka-clients-*.jar")):
        release = ".".join(path.parent.name.split(".")[:2])
        if release in RELEASES:
            yield release, path


def versions_in(jar: Path) -> dict[int, range]:
    """By API key."""
    found: dict[int, range] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", name):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                message: dict[str, Any] = json.loads(text)
                low, _, high = message["validVersions"].partition("-")
                if OF_BROKERS.intersection(message.get("listeners", ())):
                    last = int(high or low) - bool(message.get("latestVersionUnstable"))
                    found[message["apiKey"]] = range(int(low), last + 1)
    return found


def test_table_is_that_of_the_releases() -> None:
    """Of those whose clients Maven has fetched here."""
    checked = list(jars())
    if not checked:
        pytest.skip(f"there is no kafka-clients in {JARS}")
    for release, jar in checked:
        expected = versions_in(jar)
        served = {api.key: served_versions(api.name, release) for api in APIS.values()}
        assert {key: versions for key, versions in served.items() if versions} == {
            key: versions for key, versions in expected.items() if key in APIS and versions
        }, jar.name
        with zipfile.ZipFile(jar) as archive:
            errors = archive.read("org/apache/kafka/common/protocol/Errors.class")
        missing = [name for name in sorted(missing_errors(release)) if name.encode() in errors]
        assert missing == [], jar.name
        known = missing_errors("3.0") - missing_errors(release)
        assert [name for name in sorted(known) if name.encode() not in errors] == [], jar.name
