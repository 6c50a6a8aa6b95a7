"""`kill -9` of the broker under real clients: nothing acknowledged is missing, nothing is twice with idempotence."""

import random
import threading
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.clients.test_confluent_kafka import WAIT_S, consumed, consumer, create_topic
from tests.served import ServedBroker

KILLS = 5
RECORDS_BETWEEN_KILLS = 400


class Journal:
    """What the broker acknowledged, as the producer received it."""

    def __init__(self) -> None:
        self.placed: dict[bytes, int] = {}
        self.grown = threading.Condition()

    def delivered(self, error: object, message: Message) -> None:
        assert error is None, error
        with self.grown:
            self.placed[message.value()] = message.offset()
            self.grown.notify_all()

    def wait_for(self, count: int) -> None:
        with self.grown:
            assert self.grown.wait_for(lambda: len(self.placed) >= count, WAIT_S * 2), f"only {len(self.placed)}"


def test_an_idempotent_producer_loses_and_repeats_nothing(broker: ServedBroker) -> None:
    """I-4, I-10 on one broker: the page cache outlives the process."""
    create_topic(broker, "t", 1, segment_bytes="200000")
    journal = Journal()
    settings = {"enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 20, "message.timeout.ms": 60_000}
    sender = Producer({"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 200, **settings})
    stopped = threading.Event()
    written = 0

    def produce_until_stopped() -> None:
        nonlocal written
        while not stopped.is_set():
            try:
                sender.produce("t", value=f"{written}", on_delivery=journal.delivered)
                written += 1
            except BufferError:
                pass
            sender.poll(0.0005)

    thread = threading.Thread(target=produce_until_stopped)
    thread.start()
    try:
        for kill in range(1, KILLS + 1):
            journal.wait_for(kill * RECORDS_BETWEEN_KILLS)
            broker.kill()
            broker.start()
        journal.wait_for(len(journal.placed) + RECORDS_BETWEEN_KILLS)
    finally:
        stopped.set()
        thread.join()
    assert sender.flush(WAIT_S * 2) == 0

    reader = consumer(broker, "checker")
    reader.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    stored = {message.offset(): message.value() for message in consumed(reader, written)}
    low, high = reader.get_watermark_offsets(TopicPartition("t", 0), WAIT_S)
    reader.close()

    assert (low, high) == (0, written)
    assert list(stored.values()) == [f"{i}".encode() for i in range(written)], "each once, in order"
    assert {value: offset for offset, value in stored.items()} == journal.placed


def test_committed_offsets_never_go_back(tmp_path: Path) -> None:
    """I-16: an acknowledged commit is what every later fetch returns."""
    random_moment = random.Random(27)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with ServedBroker(tmp_path / "data", settings) as broker:
        create_topic(broker, "t")
        acknowledged = -1
        for _ in range(KILLS):
            acknowledged = commit_upwards(broker, acknowledged + 1, random_moment.randrange(20, 200))
            broker.kill()
            broker.start()

            reader = consumer(broker, "g")
            found = reader.committed([TopicPartition("t", 0)], WAIT_S)[0].offset
            reader.close()

            assert found == acknowledged


def commit_upwards(broker: ServedBroker, start: int, count: int) -> int:
    """Commits start, start + 1, …; returns the last offset that was acknowledged."""
    reader: Consumer = consumer(broker, "g")
    reader.assign([TopicPartition("t", 0)])
    offset = start
    for offset in range(start, start + count):
        try:
            reader.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        except KafkaException as error:
            raise AssertionError(f"commit of {offset} failed: {error}") from error
    reader.close()
    return offset
