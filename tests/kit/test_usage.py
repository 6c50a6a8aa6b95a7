"""Wrong usage of a handle: one sentence with the argument, what came, and what is wanted; and where tracebacks end."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.protocol.address import Address
from ottla.protocol.records.compression import Codec
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.control.access import ControlAccess
from ottla.testing.control.listener import ControlListener
from ottla.testing.handle import Kafka
from ottla.testing.options import ConfigError
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.async_handle import RemoteKafkaAsync
from ottla.testing.remote.handle import RemoteKafka
from ottla.testing.testbed import Testbed
from ottla.testing.usage import checks_usage
from tests.kit.test_plugin import run

pytest_plugins = ("pytester",)
PARTITIONS = "offsets by partition, as {0: 5}"
CODECS = "one of none, gzip, snappy, lz4, zstd"
RECORD = "bytes, a pair of key and value that are bytes or None, or a Record"
HEADERS = "a list of pairs of a name, which is text, and a value, which is bytes or None"
LIST = "a list of records, as [b'book'] or [(b'alice', b'book')]"


class Wrong(NamedTuple):
    call: Callable[[Any], Any]
    sentence: str
    kind: type[Exception] = TypeError


def produced(**options: Any) -> Callable[[Any], Any]:
    return lambda kafka: kafka.produce("t", [b"x"], **options)


WRONG = [
    Wrong(lambda kafka: kafka.produce("t", b"book"), f"records=b'book': expected {LIST}"),
    Wrong(lambda kafka: kafka.produce("t", "book"), f"records='book': expected {LIST}"),
    Wrong(lambda kafka: kafka.produce("t", {"a": b"b"}), f"records={{'a': b'b'}}: expected {LIST}"),
    Wrong(lambda kafka: kafka.produce("t", 5), f"records=5: expected {LIST}"),
    Wrong(lambda kafka: kafka.produce("t", [b"a", "b"]), f"records[1]='b': expected {RECORD}"),
    Wrong(lambda kafka: kafka.produce("t", [(b"a", b"b", b"c")]), f"records[0]=(b'a', b'b', b'c'): expected {RECORD}"),
    Wrong(lambda kafka: kafka.produce("t", [("a", b"b")]), f"records[0]=('a', b'b'): expected {RECORD}"),
    Wrong(lambda kafka: kafka.produce(5, [b"x"]), "topic=5: expected text"),
    Wrong(produced(compression="zip"), f"compression='zip': expected {CODECS}", ValueError),
    Wrong(produced(compression=None), f"compression=None: expected {CODECS}", ValueError),
    Wrong(produced(timestamp="now"), "timestamp='now': expected milliseconds since 1970, a whole number"),
    Wrong(produced(headers={"a": b"b"}), f"headers={{'a': b'b'}}: expected {HEADERS}"),
    Wrong(produced(headers=[("a", "b")]), f"headers=('a', 'b'): expected {HEADERS}"),
    Wrong(produced(headers=["ab"]), f"headers='ab': expected {HEADERS}"),
    Wrong(produced(acks="all"), "acks='all': expected one of -1, 0, 1", ValueError),
    Wrong(produced(acks=7), "acks=7: expected one of -1, 0, 1", ValueError),
    Wrong(produced(acks=False), "acks=False: expected one of -1, 0, 1", ValueError),
    Wrong(produced(partition="0"), "partition='0': expected a whole number"),
    Wrong(produced(partition=True), "partition=True: expected a whole number"),
    Wrong(produced(as_producer=3), "as_producer=3: expected producer id, epoch and first sequence, as (5, 0, 0)"),
    Wrong(
        produced(compresion="zip"),
        "there is no option 'compresion' of produce, "
        "only partition, timestamp, headers, acks, compression, as_producer",
    ),
    Wrong(lambda kafka: kafka.create_topic("u", "3"), "partitions='3': expected a whole number"),
    Wrong(lambda kafka: kafka.create_topic(3), "name=3: expected text"),
    Wrong(
        lambda kafka: kafka.create_topic("u", replication_factor="1"),
        "replication_factor='1': expected a whole number",
    ),
    Wrong(lambda kafka: kafka.create_topic("u", configs=["a"]), "configs=['a']: expected a mapping of names to values"),
    Wrong(lambda kafka: kafka.records(["t"]), "topic=['t']: expected text"),
    Wrong(lambda kafka: kafka.records("t", "0"), "partition='0': expected a whole number"),
    Wrong(lambda kafka: kafka.records("t", start=None), "start=None: expected a whole number"),
    Wrong(lambda kafka: kafka.records("t", limit="3"), "limit='3': expected a whole number"),
    Wrong(lambda kafka: kafka.group(3), "group_id=3: expected text"),
    Wrong(lambda kafka: kafka.clock.set("2020"), "when='2020': expected a datetime"),
    Wrong(lambda kafka: kafka.clock.freeze("2020"), "at='2020': expected a datetime"),
    Wrong(lambda kafka: kafka.clock.set_rate("fast"), "rate='fast': expected a number"),
    Wrong(lambda kafka: kafka.clock.drift(0, "fast"), "rate='fast': expected a number"),
    Wrong(lambda kafka: kafka.clock.skew("a", 3), "node='a': expected a whole number"),
    Wrong(
        lambda kafka: kafka.clock.run_next(kind="nope"), "kind='nope': expected one of transport, session, ", ValueError
    ),
    Wrong(lambda kafka: kafka.clock.include(3), "names=3: expected a set, as {'tokens'}"),
    Wrong(
        lambda kafka: kafka.clock.advance(1, sessions=5),
        "sessions=5: expected spare, expire, or a set of member ids or client ids",
    ),
    Wrong(
        lambda kafka: kafka.group("g").wait_until_committed("t", 50, within=0.1), f"offsets=50: expected {PARTITIONS}"
    ),
    Wrong(
        lambda kafka: kafka.group("g").wait_until_committed("t", {"0": 50}, within=0.1),
        f"offsets={{'0': 50}}: expected {PARTITIONS}; '0' is no partition",
    ),
    Wrong(lambda kafka: kafka.group("g").set_offsets("t", {0: "5"}), "offsets[0]='5': expected a whole number"),
    Wrong(
        lambda kafka: kafka.group("g").wait_until_stable(assigned=["t"]),
        "assigned=['t']: expected counts by topic, as {'orders': 2}",
    ),
    Wrong(lambda kafka: kafka.group("g").wait_until_stable(members="3"), "members='3': expected a whole number"),
    Wrong(lambda kafka: kafka.group("g").wait_until_generation("3"), "generation='3': expected a whole number"),
    Wrong(lambda kafka: kafka.group("g").wait_until_lag("3", topic="t"), "lag='3': expected a whole number"),
    Wrong(
        lambda kafka: kafka.group("g").wait_until_empty(within="soon"), "within='soon': expected a number of seconds"
    ),
    Wrong(lambda kafka: kafka.group("g").evict(5), "member=5: expected text"),
    Wrong(
        lambda kafka: kafka.wait_until_consumed("t", upto=5),
        "upto=5: expected 'end', or offsets by partition",
    ),
    Wrong(lambda kafka: kafka.wait_for_records("t", "5"), "count='5': expected a whole number"),
    Wrong(lambda kafka: kafka.wait_until_idle(ms="x"), "ms='x': expected a number of milliseconds"),
    Wrong(lambda kafka: kafka.wait("x", describe="d"), "predicate='x': expected a function that takes the handle"),
    Wrong(lambda kafka: kafka.load(3), "seed=3: expected the path of a file, or a mapping"),
    Wrong(lambda kafka: kafka.snapshot(3), "name=3: expected text"),
]


@pytest.fixture(scope="module")
def control(shared_bed: Testbed) -> Iterator[RemoteControl]:
    listener = shared_bed.run(opened(shared_bed))
    yield RemoteControl(listener.url, "token", prefix="", deadline_s=5)
    shared_bed.run(listener.close())


async def opened(bed: Testbed) -> ControlListener:
    listener = ControlListener(bed, ControlAccess("token"))
    await listener.open(Address("127.0.0.1", 0))
    return listener


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.sentence[:40])
def test_wrong_argument_is_one_sentence(wrong: Wrong, bed: Testbed, control: RemoteControl) -> None:
    """Nothing is asked of the brokers: what is said of those of another process is the same."""
    for handle in (Kafka(bed), RemoteKafka(control)):
        with pytest.raises(wrong.kind, match=f"^{re.escape(wrong.sentence)}") as caught:
            wrong.call(handle)
        assert type(caught.value) is wrong.kind


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.sentence[:40])
async def test_wrong_argument_to_await_is_the_same(wrong: Wrong, bed: Testbed, control: RemoteControl) -> None:
    for handle in (KafkaAsync(bed), RemoteKafkaAsync(control)):
        with pytest.raises(wrong.kind, match=f"^{re.escape(wrong.sentence)}"):
            await wrong.call(handle)


@pytest.mark.parametrize(
    ("call", "sentence", "kind"),
    [
        (lambda kafka: kafka.faults.add(3), "rule=3: expected a mapping, or a line of text", TypeError),
        (lambda kafka: kafka.faults.add_all([3]), "rules[0]=3: expected a mapping, or a line of text", TypeError),
        (lambda kafka: kafka.faults.add_all(3), "rules=3: expected a list of rules", TypeError),
        (lambda kafka: kafka.faults.load(3), "path=3: expected the path of a file", TypeError),
    ],
)
def test_wrong_rules_are_one_sentence(
    call: Callable[[Any], Any], sentence: str, kind: type[Exception], bed: Testbed, control: RemoteControl
) -> None:
    for handle in (Kafka(bed), RemoteKafka(control)):
        with pytest.raises(kind, match=f"^{re.escape(sentence)}"):
            call(handle)


def test_other_parts_say_it_too(handle: Kafka, tmp_path: Path) -> None:
    topic = handle.create_topic("orders")
    for call, sentence in (
        (lambda: topic.add_partitions("3"), "count='3': expected a whole number"),
        (lambda: topic.delete_records(0, before="3"), "before='3': expected a whole number"),
        (lambda: topic.alter(3), "configs=3: expected a mapping of names to values"),
        (lambda: handle.wire.record(3), "path=3: expected the path of a file"),
        (lambda: handle.events("x"), "kinds='x': expected classes of ottla.coordinator.facts"),
        (lambda: handle.partition("orders", 0).move_leader(to="1"), "to='1': expected a whole number"),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(sentence)}"):
            call()


def test_what_is_right_still_is(handle: Kafka) -> None:
    places = handle.produce(
        "orders",
        ((None, b"a"), b"b"),
        partition=Codec.NONE,
        timestamp=None,
        headers=(("name", None),),
        acks=1,
        compression="lz4",
        as_producer=None,
    )

    assert [offset for _, offset in places] == [0, 1]
    assert [each.value for each in handle.records("orders", None, stop=None)] == [b"a", b"b"]
    assert len(handle.faults.add_all(rule for rule in ["api=Produce,error=INVALID_RECORD,optional=true"])) == 1
    handle.clock.include(name for name in ["tokens"])
    assert handle.clock.included == {"tokens"}
    handle.group("shop").set_offsets("orders", {0: 1})
    assert handle.group("shop").offsets == {("orders", 0): 1}


def test_signatures_and_documentation_are_kept() -> None:
    import inspect

    assert list(inspect.signature(Kafka.create_topic).parameters)[:3] == ["self", "name", "partitions"]
    assert "CreateTopics" in (Kafka.create_topic.__doc__ or "")
    assert inspect.iscoroutinefunction(KafkaAsync.produce)
    with pytest.raises(TypeError, match=r"create_topic\(\) missing 1 required positional argument: 'name'"):
        Kafka.create_topic(object())


def test_only_errors_of_the_kit_lose_their_traceback() -> None:
    @checks_usage
    class Handle:
        def fail(self, error: Exception) -> None:
            raise error

    frames: dict[type[Exception], list[str]] = {}
    for error in (ConfigError("of the kit"), KeyError("a bug")):
        with pytest.raises(type(error)) as caught:
            Handle().fail(error)
        frames[type(error)] = [entry.name for entry in caught.traceback]

    assert [name for name in frames[ConfigError] if name == "fail"] == []
    assert frames[KeyError][-1] == "fail"


def test_tracebacks_end_in_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    calls = ('create_topic("a b")', 'produce("t", b"x")', 'group("g").wait_until_stable(members=1, within=0.01)')
    tests = [f"def test_{number}(kafka):\n    kafka.{call}\n" for number, call in enumerate(calls)]
    tests += [
        f"async def test_async_{number}(kafka_async):\n    await kafka_async.{call}\n"
        for number, call in enumerate(calls)
    ]
    path = pytester.makepyfile("\n".join(tests))

    for place in ("thread", "process"):
        result = run(pytester, "--ottla-report=off", f"--ottla-where={place}", "--tb=short")

        result.assert_outcomes(failed=6)
        entries = [line for line in result.stdout.lines if re.match(r"\S+\.py:\d+: in ", line)]
        assert [entry.partition(":")[0] for entry in entries] == [path.name] * 6, entries
