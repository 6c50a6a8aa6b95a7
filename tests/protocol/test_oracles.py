"""Our codec against two independent ones: every version of every message, byte for byte, in both directions."""

import random

import pytest

from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.schema import Message
from tests.protocol import kafka_python_oracle, kio_oracle
from tests.protocol.known_messages import MESSAGES, every_version, versions
from tests.protocol.random_messages import random_message

EXAMPLES = 6

# What an oracle does not know would go here, so that nothing is skipped in silence.
UNKNOWN_TO_KAFKA_PYTHON = [("UnregisterBrokerRequest", 0), ("UnregisterBrokerResponse", 0)]
UNKNOWN_TO_KIO: list[tuple[str, int]] = []


def test_each_oracle_knows_every_version_but_those_listed() -> None:
    unknown_to_kafka_python = [
        (cls.__name__, version) for cls, version in every_version() if not kafka_python_oracle.knows(cls, version)
    ]
    unknown_to_kio = [(cls.__name__, version) for cls, version in every_version() if not kio_oracle.knows(cls, version)]

    assert unknown_to_kafka_python == UNKNOWN_TO_KAFKA_PYTHON
    assert unknown_to_kio == UNKNOWN_TO_KIO


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_kafka_python_writes_and_reads_the_same_message(cls: type[Message]) -> None:
    for version in (known for known in versions(cls) if (cls.__name__, known) not in UNKNOWN_TO_KAFKA_PYTHON):
        rng = random.Random(f"kafka-python {cls.__name__} {version}")
        for _ in range(EXAMPLES):
            message = random_message(cls, version, rng)
            data = encode(message, version)

            assert data == kafka_python_oracle.encode(message, version)
            assert message == decode_whole(cls, version, data)
            assert message == kafka_python_oracle.decode(cls, version, data)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_kio_reads_the_same_values_and_writes_the_same_bytes(cls: type[Message]) -> None:
    for version in versions(cls):
        rng = random.Random(f"kio {cls.__name__} {version}")
        for _ in range(EXAMPLES):
            message = random_message(cls, version, rng)
            data = encode(message, version)

            values, written = kio_oracle.decode_and_encode(cls, version, data)

            assert values == kio_oracle.flat_ours(message, version)
            assert written == data
