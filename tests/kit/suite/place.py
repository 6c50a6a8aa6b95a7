"""Where a test of the suite works: a broker, and names that it has for itself."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.handle import Kafka
from tests.kit.suite.library import WITHIN_S
from tests.waiting import wait_for

Seen = Callable[[Any], None]
"""Notes what a test has seen, which is compared between runs."""


@dataclass(frozen=True)
class Place:
    """Each test creates its topic. Under Ottla the names are the same in all tests, so that what one of them leaves
    is what another one meets; at a broker that nothing empties, they are a test's own."""

    bootstrap: str
    topic: str
    group: str
    kafka: Kafka | None
    admin: AdminClient | None
    """Of a broker that has no handle."""

    def create(self, partitions: int, topic: str = "") -> None:
        name = topic or self.topic
        if self.kafka is not None:
            self.kafka.create_topic(name, partitions)
        else:
            assert self.admin is not None
            self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WITHIN_S)

    def wait_until_gone(self) -> None:
        """A broker may answer a deletion before all of it is done."""
        if self.admin is not None:
            admin = self.admin
            wait_for(
                lambda: self.topic not in admin.list_topics(timeout=WITHIN_S).topics, WITHIN_S, "it is still there"
            )


def comparable(value: Any) -> Any:
    """What a test has seen, as it is read from a file."""
    return json.loads(json.dumps(value, default=lambda each: each.decode()))
