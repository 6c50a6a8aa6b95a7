"""Captures of connections whose links have faults: neither undoes the other."""

from pathlib import Path

import pytest

from ottla.broker.server.connection import Connection
from ottla.testing.handle import Kafka
from ottla.testing.surroundings.link_protocol import LinkProtocol
from tests.kit.members import send
from tests.wire.captures import apis_in, connections_of


def held(kafka: Kafka) -> list[bool]:
    """Of each connection of clients, whether a link with faults is in between."""
    transports = [each.transport for each in connections_of(kafka) if each.transport is not None]
    return kafka._bed.call(lambda: [isinstance(each.get_protocol(), LinkProtocol) for each in transports])


def test_link_is_held_up_while_it_is_captured(kafka: Kafka, tmp_path: Path) -> None:
    producer = send(kafka, "orders", b"before")
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        kafka.links.lossless_pause("clients", to=0)
        producer.produce("orders", b"held")
        assert producer.flush(0.3) == 1
        assert all(held(kafka))
        kafka.links.heal()
        assert producer.flush(30) == 0

    assert not any(held(kafka))
    assert {type(each) for each in connections_of(kafka)} == {Connection}
    assert apis_in(capture.path).count("Produce") == 1


@pytest.mark.parametrize("ends_first", ["capture", "link"])
def test_capture_leaves_a_link_held_up(kafka: Kafka, tmp_path: Path, ends_first: str) -> None:
    producer = send(kafka, "orders", b"before")
    kafka.links.lossless_pause("clients", to=0)
    producer.produce("orders", b"held")
    assert producer.flush(0.3) == 1

    capture = kafka.wire.record(tmp_path / "a.owire")
    assert (producer.flush(0.3), all(held(kafka))) == (1, True)
    if ends_first == "capture":
        capture.stop()
        assert (producer.flush(0.3), all(held(kafka))) == (1, True)
    kafka.links.heal()
    assert producer.flush(30) == 0
    if ends_first == "link":
        capture.stop()

    assert [each.value for each in kafka.records("orders")] == [b"before", b"held"]
    assert ("Produce" in apis_in(capture.path)) == (ends_first == "link")
