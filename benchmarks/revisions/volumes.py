"""What bytes cost a broker in processor time, of either tree: produced and consumed, with one broker and with three."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from benchmarks import raw_client
from benchmarks.bulk import BATCH_BYTES, fetch_all
from benchmarks.processes import Server
from benchmarks.raw_client import RawClient
from benchmarks.revisions.trees import Tree
from benchmarks.revisions.turns import Measured, Row

BATCHES = 48
SMALL_BATCH_BYTES = 16 << 10
SMALL_BATCHES = 1_024
WINDOW = 5
TOPIC_SETTINGS = ("--set", f"log.segment.bytes={1 << 30}")
UNIT = "s/GB"


@contextmanager
def of_one_broker(tree: Tree) -> Iterator[Measured]:
    large = raw_client.batch_of_size(BATCH_BYTES, 1024)
    small = raw_client.batch_of_size(SMALL_BATCH_BYTES, 100)
    with tree.broker(*TOPIC_SETTINGS) as server:
        client = RawClient(server.port)
        raw_client.create_topic(client, "consumed")
        client.pipeline(raw_client.produce_frame("consumed", large), BATCHES, WINDOW)
        topics = (f"produced-{number}" for number in count())

        def topic() -> str:
            # Of its own in each turn: all write to pages that the machine must first get.
            name = next(topics)
            raw_client.create_topic(client, name)
            return name

        yield {
            Row("bulk produce, 1 KiB records, processor", UNIT): _produce(server, client, large, BATCHES, topic),
            Row("produce of 100 B records, 16 KiB batches, processor", UNIT): _produce(
                server, client, small, SMALL_BATCHES, topic
            ),
            Row("bulk consume, 1 KiB records, processor", UNIT): _consume(server, client, large),
        }
        client.close()


@contextmanager
def of_three_brokers(tree: Tree) -> Iterator[Measured]:
    large = raw_client.batch_of_size(BATCH_BYTES, 1024)
    with tree.broker(*TOPIC_SETTINGS, "--brokers", "3", pinned=False) as server:
        leader = raw_client.replicated_topic(RawClient(server.port), "produced", 3)
        row = Row("bulk produce, 1 KiB records, acks=all, three brokers, processor", UNIT)
        yield {row: _produce(server, leader, large, BATCHES, lambda: "produced")}
        leader.close()


def _produce(
    server: Server, client: RawClient, records: bytes, batches: int, topic: Callable[[], str]
) -> Callable[[], float]:
    def measure() -> float:
        frame = raw_client.produce_frame(topic(), records)
        before = server.cpu_seconds()
        client.pipeline(frame, batches, WINDOW)
        return (server.cpu_seconds() - before) / (len(records) * batches) * 1e9

    return measure


def _consume(server: Server, client: RawClient, records: bytes) -> Callable[[], float]:
    records_of_batch = struct.unpack_from(">i", records, 57)[0]
    frames = [raw_client.fetch_frame("consumed", number * records_of_batch, BATCH_BYTES) for number in range(BATCHES)]

    def measure() -> float:
        before = server.cpu_seconds()
        fetch_all(client, frames)
        return (server.cpu_seconds() - before) / (len(records) * BATCHES) * 1e9

    return measure
