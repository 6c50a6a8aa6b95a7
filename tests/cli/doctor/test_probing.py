"""The doctor's own topic, by which it reads the clock of each broker."""

from ottla.cli.doctor.asker import Asker
from ottla.cli.doctor.probing import clocks_by_records, could_probe
from ottla.cli.doctor.sampling import PROBE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.cli.fake_broker import FakeBroker
from tests.cli.test_client import client_of

AT_MS = 1_700_000_000_000


def appended(code: ErrorCode) -> ProduceResponse:
    row = PartitionProduceResponse(index=0, error_code=int(code), log_append_time_ms=AT_MS)
    return ProduceResponse(responses=[TopicProduceResponse(name=PROBE_TOPIC, partition_responses=[row])])


def creating(broker: FakeBroker, *codes: ErrorCode) -> None:
    """It creates the topic and deletes it, and answers what is produced in between by these codes."""
    broker.has_topics()
    broker.answer(CreateTopicsRequest, CreateTopicsResponse(topics=[CreatableTopicResult(name=PROBE_TOPIC)]))
    broker.answer(DeleteTopicsRequest, DeleteTopicsResponse(responses=[DeletableTopicResult(name=PROBE_TOPIC)]))
    broker.answer(ProduceRequest, *map(appended, codes))


async def test_a_broker_that_has_not_heard_of_the_topic_is_asked_again() -> None:
    """Apache Kafka's controller answers before each broker has the new topic."""
    with FakeBroker() as broker:
        creating(broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
        async with client_of(broker) as client:
            await client.metadata(None)
            clocks = await clocks_by_records(Asker(client, client.brokers))

    ((ahead_ms, exactness_ms),) = clocks.values()
    assert ahead_ms < 0
    assert exactness_ms >= 1
    assert len(broker.requests(ProduceRequest)) == 3


async def test_a_topic_that_stays_unknown_is_a_note_and_deleted() -> None:
    with FakeBroker() as broker:
        creating(broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        async with client_of(broker, timeout_s=0.3) as client:
            await client.metadata(None)
            asker = Asker(client, client.brokers)
            assert await could_probe(asker) == {}

    assert [(note.check, note.reason) for note in asker.notes] == [
        ("D10", f"--probe: cannot produce to {PROBE_TOPIC}-0: it does not exist")
    ]
    assert len(broker.requests(DeleteTopicsRequest)) == 1
