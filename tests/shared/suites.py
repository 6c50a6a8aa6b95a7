"""A suite of a user, whose tests meet on one broker, and what pytest says of it."""

import re
from typing import Any

import pytest

CLIENTS = """
import pytest
from confluent_kafka import Consumer, Producer

def send(kafka, topic, *values, **config):
    producer = Producer(kafka.client_config("producer") | {"log_level": 0, "linger.ms": 0} | config)
    for value in values:
        producer.produce(topic, value)
        assert producer.flush(20) == 0

def consume(kafka, topic, group, client_id):
    own = {"group.id": group, "client.id": client_id, "enable.auto.commit": False}
    consumer = Consumer(kafka.client_config("consumer") | own)
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    return message.value()
"""
MIXED = f"""{CLIENTS}
@pytest.mark.parametrize("number", range(6))
def test_given_again(kafka, kafka_topic, kafka_group, number):
    topic, group = kafka_topic(partitions=1), kafka_group()
    send(kafka, topic, b"book")
    for name in ("first", "second"):
        assert consume(kafka, topic, group, topic + name) == b"book"
    assert kafka.topics and set(kafka.topics) >= {{topic}}
    kafka.group(group).wait_until_empty()

@pytest.mark.parametrize("number", range(6))
def test_sent_twice(kafka, kafka_topic, number):
    topic = kafka_topic(partitions=1)
    with kafka.fault(api="Produce", topic=topic, times=1, do={{"disconnect": "after"}}) as fault:
        send(kafka, topic, b"book", **{{"enable.idempotence": False}})
        fault.wait(hits=1)
    assert len(kafka.records(topic)) == 2

@pytest.mark.parametrize("number", range(6))
def test_refused_once(kafka, kafka_topic, number):
    topic = kafka_topic(partitions=1)
    rule = kafka.fault(api="Produce", topic=topic, do={{"error": "NOT_LEADER_OR_FOLLOWER"}}, id="once")
    send(kafka, topic, b"book")
    assert (rule.hits, rule.id, kafka.faults["once"].is_exhausted) == (1, "once", True)
"""


def ini(suite: pytest.Pytester, *lines: str) -> None:
    suite.makeini("\n".join(["[pytest]", "asyncio_default_fixture_loop_scope = function", *lines]))


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=120)


def shared(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """With two workers on one broker."""
    return run(suite, "-n", "2", "--ottla-shared", *arguments)


def audit_line(result: pytest.RunResult) -> str:
    (line,) = [line for line in result.stdout.lines if line.startswith("ottla: audit:")]
    return line


def exercised(counted: dict[str, Any]) -> dict[str, Any]:
    """What a suite counts the same however fast its clients are: names of what it does, and numbers of what rules did
    and groups went through."""
    named = {name: sorted(counted[name]) for name in ("apis", "causes", "features")}
    return named | {"injected": counted["injected"], "transitions": sorted(counted["transitions"])}


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)
