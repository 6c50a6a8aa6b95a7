"""The same dialogues about quotas with Apache Kafka 4.1 and with this broker: throttles, empty fetches, refused topics,
and what AlterClientQuotas says of what makes no sense."""

import asyncio
import operator
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from benchmarks.figure import NotMeasured
from ottla.protocol.client import WireClient
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.asking import Client
from tests.broker.requests import fetch, produce, topic
from tests.broker.wire import batch
from tests.differential.brokers import both

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]
PRODUCE, FETCH = 9, 11
TESTER = "tester"
# Between the moments at which two brokers are asked, and their own samples.
NEAR_MS = 400
# A machine that is busy may keep one broker waiting, and not the other. What differs each time differs.
ATTEMPTS = 4


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[Any, Any]]:
    try:
        with both() as found:
            yield found
    except NotMeasured as reason:
        pytest.skip(str(reason))


@asynccontextmanager
async def talking(address: tuple[str, int], client_id: str = TESTER) -> Any:
    client = Client(*await asyncio.open_connection(*address))
    client._wire = WireClient(client_id)
    try:
        yield client
    finally:
        with suppress(ConnectionError):
            await client.close()


def entry(entity: list[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value, remove=remove) for key, value, remove in ops],
    )


async def set_quota(address: tuple[str, int], key: str, value: float | None, client_id: str = TESTER) -> None:
    async with talking(address) as client:
        wanted = entry([("client-id", client_id)], (key, value or 0.0, value is None))
        answer = await client.ask(AlterClientQuotasRequest(entries=[wanted]), 1)
        assert [each.error_code for each in answer.entries] == [0]
    # Brokers of Kafka follow their controller.
    await asyncio.sleep(1)


async def made(address: tuple[str, int], name: str) -> None:
    async with talking(address) as client:
        await client.ask(CreateTopicsRequest(topics=[topic(name)], timeout_ms=10_000), 7)
        async with asyncio.timeout(30):
            while True:
                answer = await client.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
                if any(
                    each.name == name and each.partitions and not each.partitions[0].error_code
                    for each in answer.topics
                ):
                    return


Measure = Callable[[tuple[str, int], str], Awaitable[Any]]


async def both_alike(addresses: Any, measure: Measure, are_alike: Callable[[Any, Any], bool]) -> Any:
    """What `measure` gives of both, at one of the attempts. It gets a name for each, for what was not used before."""
    measured = []
    for attempt in range(ATTEMPTS):
        ours, theirs = [await measure(address, f"attempt-{attempt}") for address in addresses]
        if are_alike(ours, theirs):
            return ours
        measured.append((ours, theirs))
    raise AssertionError(f"ours and Kafka's differ each time: {measured}")


async def throttles_of_produce(address: tuple[str, int], client_id: str) -> list[int]:
    await made(address, "bytes")
    await set_quota(address, "producer_byte_rate", 100_000, client_id)
    throttles = []
    async with talking(address, client_id) as client:
        for size in (400_000, 400_000, 400_000):
            answer = await client.ask(produce("bytes", records=batch(bytes(size))), PRODUCE)
            throttles.append(answer.throttle_time_ms)
    await set_quota(address, "producer_byte_rate", None, client_id)
    return throttles


async def test_produce_is_throttled_alike(addresses: tuple[Any, Any]) -> None:
    def are_alike(ours: list[int], theirs: list[int]) -> bool:
        return all(abs(each - other) < NEAR_MS for each, other in zip(ours, theirs, strict=True))

    ours = await both_alike(addresses, throttles_of_produce, are_alike)
    assert [each > 0 for each in ours] == [False, False, True]


async def fetched(address: tuple[str, int], name: str) -> list[Any]:
    await made(address, name)
    async with talking(address) as client:
        await client.ask(produce(name, records=batch(bytes(600_000))), PRODUCE)
    await set_quota(address, "consumer_byte_rate", 50_000, name)
    seen = []
    async with talking(address, name) as client:
        for _ in range(2):
            request = fetch(name, session_epoch=0, min_bytes=1, max_bytes=1 << 20)
            answer = await client.ask(request, FETCH)
            bytes_sent = sum(len(each.records or b"") for t in answer.responses for each in t.partitions)
            seen.append((answer.error_code, answer.session_id == 0, bytes_sent, round(answer.throttle_time_ms, -3)))
    await set_quota(address, "consumer_byte_rate", None, name)
    return seen


async def test_a_fetch_is_throttled_alike(addresses: tuple[Any, Any]) -> None:
    """One batch that is larger than what the window allows: it is not sent, and no broker counts it."""
    ours = await both_alike(addresses, fetched, operator.eq)
    assert [each[2] for each in ours] == [0, 0]


async def mutated(address: tuple[str, int], version: int, name: str) -> tuple[list[int], int]:
    await set_quota(address, "controller_mutation_rate", 1, name)
    async with talking(address, name) as client:
        topics = [topic(f"{name}{number}", count) for number, count in enumerate((8, 8, 1))]
        answer = await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), version)
    await set_quota(address, "controller_mutation_rate", None, name)
    codes = {each.name: each.error_code for each in answer.topics}
    return [codes[each.name] for each in topics], answer.throttle_time_ms


@pytest.mark.parametrize("version", [7, 5])
async def test_changes_of_topics_are_throttled_alike(addresses: tuple[Any, Any], version: int) -> None:
    """Refused one by one by the newer versions."""

    async def measure(address: tuple[str, int], name: str) -> tuple[list[int], int]:
        return await mutated(address, version, f"v{version}-{name}-")

    def are_alike(ours: tuple[list[int], int], theirs: tuple[list[int], int]) -> bool:
        return ours[0] == theirs[0] and abs(ours[1] - theirs[1]) < NEAR_MS

    _, throttle_ms = await both_alike(addresses, measure, are_alike)
    assert throttle_ms > 2_000


async def created_unasked(address: tuple[str, int], client_id: str) -> tuple[list[int], int]:
    """How many of ten topics there are after each of three requests that ask for them, and the throttles of these."""
    await set_quota(address, "controller_mutation_rate", 0.5, client_id)
    names = [MetadataRequestTopic(name=f"{client_id}-{number}") for number in range(10)]
    seen, throttle_ms = [], 0
    async with talking(address, client_id) as client:
        for _ in range(3):
            answer = await client.ask(MetadataRequest(topics=names, allow_auto_topic_creation=True), 12)
            throttle_ms += answer.throttle_time_ms
            await asyncio.sleep(1.5)
            answer = await client.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
            seen.append(sum(not each.error_code for each in answer.topics))
    await set_quota(address, "controller_mutation_rate", None, client_id)
    return seen, throttle_ms


async def test_topics_that_are_created_unasked_count_alike(addresses: tuple[Any, Any]) -> None:
    counts, _ = await both_alike(addresses, created_unasked, operator.eq)
    assert counts[0] == 6


async def muted(address: tuple[str, int]) -> tuple[float, float]:
    """How long an answer with a throttle took, and how long the next one."""
    await made(address, "mute")
    await set_quota(address, "producer_byte_rate", 100_000)
    loop = asyncio.get_running_loop()
    async with talking(address) as client:
        begun = loop.time()
        await client.ask(produce("mute", records=batch(bytes(900_000))), PRODUCE)
        answer = await client.ask(produce("mute", records=batch(bytes(300_000))), PRODUCE)
        first = loop.time() - begun
        begun = loop.time()
        await client.ask(MetadataRequest(topics=[]), 12)
        second = loop.time() - begun
        assert abs(second * 1000 - answer.throttle_time_ms) < NEAR_MS, (address, second, answer.throttle_time_ms)
    await set_quota(address, "producer_byte_rate", None)
    return first, second


async def test_the_answer_comes_at_once_and_the_connection_rests(addresses: tuple[Any, Any]) -> None:
    for address in addresses:
        first, second = await muted(address)
        assert first < second
        assert 1.5 < second < 2.6


WRONG: list[tuple[list[tuple[str, str | None]], tuple[tuple[str, float, bool], ...]]] = [
    ([], (("producer_byte_rate", 1.0, False),)),
    ([("planet", "mars")], (("producer_byte_rate", 1.0, False),)),
    ([("user", "")], (("producer_byte_rate", 1.0, False),)),
    ([("user", "a"), ("ip", "10.0.0.1")], (("producer_byte_rate", 1.0, False),)),
    ([("user", "a")], (("no.such", 1.0, False),)),
    ([("user", "a")], (("connection_creation_rate", 1.0, False),)),
    ([("ip", None)], (("producer_byte_rate", 1.0, False),)),
    ([("user", "a")], (("producer_byte_rate", 0.0, False),)),
    ([("user", "a")], (("producer_byte_rate", 1.5, False),)),
    ([("user", "a")], (("producer_byte_rate", 1e300, False),)),
    ([("ip", None)], (("connection_creation_rate", 2.0**31, False),)),
    ([("ip", None)], (("connection_creation_rate", 0.5, False),)),
    ([("user", "a")], (("no.such", 0.0, True),)),
    ([("user", "a")], ()),
]


async def sentences(address: tuple[str, int]) -> list[tuple[int, str | None]]:
    async with talking(address) as client:
        found = []
        for named, ops in WRONG:
            answer = await client.ask(AlterClientQuotasRequest(entries=[entry(named, *ops)]), 1)
            found += [(each.error_code, each.error_message) for each in answer.entries]
        return found


async def test_refusals_have_kafkas_codes_and_sentences(addresses: tuple[Any, Any]) -> None:
    ours, theirs = [await sentences(address) for address in addresses]
    assert ours == theirs
