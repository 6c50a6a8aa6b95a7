"""Seeds: what a file says is in the broker afterwards, and what is wrong is said with its path."""

import asyncio
import builtins
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.fetch import FetchRequest
from ottla.testing import SeedError
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.handle import Kafka
from ottla.testing.seeds.seed_files import read_seed
from ottla.testing.seeds.seed_schema import SEED
from ottla.testing.testbed import Testbed
from tests.kit.members import consumer, polled

SHOP: dict[str, Any] = {
    "topics": {
        "orders": {
            "partitions": 2,
            "configs": {"retention.ms": -1, "cleanup.policy": "compact"},
            "records": [
                {"key": "alice", "json": {"item": "book", "n": 1}, "headers": {"source": "web"}, "timestamp": 7},
                {"key": "bob", "value": None, "partition": 1},
                {"key": "c", "base64": "AAE=", "partition": 0},
                {"key": "k{n}", "json": ["{n}", {"id-{n}": "{other}"}], "count": 3, "partition": 1},
            ],
        },
        "empty": 3,
    },
    "groups": {"shop": {"offsets": {"orders": {"0": 1, "1": "end"}, "empty": {"2": "start"}}}},
}

YAML = """
topics:
  orders:
    partitions: 1
    records:
      - {key: alice, value: book}
      - {value: "order {n}", count: 2}
groups:
  shop:
    offsets:
      orders: {0: 2}
"""
TOML = """
[topics.orders]
partitions = 1
records = [{ key = "alice", value = "book" }, { value = "order {n}", count = 2 }]

[groups.shop.offsets.orders]
0 = 2
"""
LINES = """
{"topic": "orders", "key": "alice", "value": "book"}
{"topic": "orders", "value": "order {n}", "count": 2}
"""


def test_what_a_seed_says_is_there(handle: Kafka) -> None:
    report = handle.load(SHOP)

    assert (report.topics, report.records, report.groups) == (2, 6, 1)
    orders = handle.topic("orders").describe()
    assert dict(orders.configs) == {"retention.ms": "-1", "cleanup.policy": "compact"}
    assert len(handle.topic("empty").partitions) == 3
    first = next(record for record in handle.records("orders") if record.key == b"alice")
    assert (first.value, first.timestamp) == (b'{"item":"book","n":1}', 7)
    assert [tuple(header) for header in first.headers] == [("source", b"web")]
    second = [(record.key, record.value) for record in handle.records("orders", 1) if record.key != b"alice"]
    assert second == [(b"bob", None), *((b"k%d" % n, b'["%d",{"id-%d":"{other}"}]' % (n, n)) for n in range(3))]
    assert b"\x00\x01" in [record.value for record in handle.records("orders", 0)]
    ends = {each.partition: each.high_watermark for each in orders.partitions}
    assert handle.group("shop").offsets == {("orders", 0): 1, ("orders", 1): ends[1], ("empty", 2): 0}


@pytest.mark.parametrize(
    ("name", "text"),
    [("shop.yaml", YAML), ("shop.toml", TOML), ("shop.jsonl", LINES)],
    ids=["yaml", "toml", "jsonl"],
)
def test_files_of_all_kinds_say_the_same(name: str, text: str, handle: Kafka, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)

    handle.load(tmp_path / name)

    values = [record.value for record in handle.records("orders")]
    assert values == [b"book", b"order 0", b"order 1"]
    assert handle.records("orders")[0].key == b"alice"
    if name != "shop.jsonl":
        assert handle.group("shop").lag("orders") == {0: 1}


def test_a_client_goes_on_where_the_seed_says(handle: Kafka) -> None:
    handle.load({"topics": {"orders": {"partitions": 1, "records": [{"value": "{n}", "count": 5}]}}})
    handle.load({"groups": {"shop": {"offsets": {"orders": {"0": 3}}}}})

    with consumer(handle, "shop", "orders") as shop:
        assert polled(shop, 2) == [b"3", b"4"]


def test_many_records_are_no_batch_that_is_too_large(handle: Kafka) -> None:
    large = {"value": "x" * 1000, "key": "k{n}", "count": 3000}

    handle.load({"topics": {"orders": {"partitions": 1, "records": [large, {"value": "y" * 700_000}]}}})

    assert [record.key for record in handle.records("orders")] == [*(b"k%d" % n for n in range(3000)), None]


def test_values_come_from_files_beside_the_seed(handle: Kafka, tmp_path: Path) -> None:
    (tmp_path / "value.bin").write_bytes(b"\x00 bytes")
    seed = tmp_path / "seed.json"
    seed.write_text(json.dumps({"topics": {"orders": {"records": [{"file": "value.bin"}]}}}))

    asyncio.run(KafkaAsync(handle._bed).load(str(seed)))

    assert [record.value for record in handle.records("orders")] == [b"\x00 bytes"]


def test_users_quotas_acls_and_rules_are_set(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
    bed = Testbed(settings=settings, data=tmp_path, deadline=20)
    bed.start()
    try:
        handle = Kafka(bed)
        reading = {"principal": "User:alice", "operation": "read"}
        handle.load(
            {
                "users": {"alice": "secret", "bob": {"password": "secret", "mechanism": "SCRAM-SHA-512"}},
                "acls": [
                    reading | {"resource": "topic", "name": "o", "pattern": "prefixed"},
                    {"principal": "User:bob", "operation": "cluster-action", "resource": "cluster"},
                ],
                "quotas": [{"user": "alice", "client_id": None, "producer_byte_rate": 1000}],
                "rules": [{"match": {"api": "Fetch"}, "do": {"delay": 1}, "optional": True}],
            }
        )

        (parts,) = bed.hosted.parts().values()
        image = parts.metadata.image
        assert sorted((scram.mechanism, user) for scram, user in image.scram_credentials) == [
            ("SCRAM-SHA-256", "alice"),
            ("SCRAM-SHA-512", "bob"),
        ]
        shown = sorted(
            (each.principal, each.operation.name, each.resource_type.name, each.name, each.pattern_type.name)
            for each in image.acls.values()
        )
        assert shown == [
            ("User:alice", "READ", "TOPIC", "o", "PREFIXED"),
            ("User:bob", "CLUSTER_ACTION", "CLUSTER", "kafka-cluster", "LITERAL"),
        ]
        ((entity, limits),) = image.client_quotas.items()
        assert (entity.user, dict(limits)) == ("alice", {"producer_byte_rate": 1000})
        assert [fault.rule.apis[0].key for fault in handle.faults] == [FetchRequest.API_KEY]
        bed.run(bed.reset())
    finally:
        bed.stop()


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        ({"topic": {}}, "topic: there is no such key; did you mean 'topics'?"),
        ({"topics": {"a": {"partitons": 1}}}, "topics.a.partitons: there is no such key; did you mean 'partitions'?"),
        ({"topics": {"a": "3"}}, "topics.a: '3': expected integer or object"),
        ({"topics": {"a": 0}}, "topics.a: 0: expected at least 1"),
        ({"topics": {"a": True}}, "topics.a: True: expected integer or object"),
        ({"topics": {"a": {"records": [{}]}}}, "topics.a.records[0]: expected one of value, json, base64, file, not 0"),
        (
            {"topics": {"a": {"records": [{"value": "x", "json": 1}]}}},
            "topics.a.records[0]: expected one of value, json, base64, file, not 2 of them",
        ),
        ({"topics": {"a": {"records": [{"base64": "?"}]}}}, "topics.a.records[0].base64: not base64"),
        ({"topics": {"a": {"records": [{"file": "none"}]}}}, "topics.a.records[0].file: "),
        (
            {"topics": {"a": {"records": [{"value": "x", "partition": 9}]}}},
            "topics.a.records[0]: there is no partition",
        ),
        ({"topics": {"a": {"configs": {"retention": 1}}}}, "topics.a: "),
        ({"topics": {"a/b": 1}}, "topics.a/b: "),
        ({"groups": {"g": {"offsets": {"a": {"0": 1}}}}}, "groups.g.offsets.a.0: there is no such partition"),
        (
            {"users": {"u": {"password": "x", "mechanism": "PLAIN"}}},
            "users.u.mechanism: 'PLAIN': expected one of",
        ),
        ({"users": {"u": {}}}, "users.u: 'password' is missing"),
        (
            {"acls": [{"principal": "User:a", "operation": "raed", "resource": "topic"}]},
            "acls[0].operation: 'raed'; did you mean 'read'?",
        ),
        ({"acls": [{"principal": "User:a", "operation": "read", "resource": "topic"}]}, "acls: no authorizer"),
        ({"quotas": [{"producer_byte_rate": 1}]}, "quotas: "),
        ({"rules": [{"match": {"api": "Nothing"}, "do": "drop"}]}, "rules: "),
    ],
    ids=str,
)
def test_mistakes_are_said_with_their_path(seed: dict[str, Any], message: str, handle: Kafka) -> None:
    with pytest.raises(SeedError) as raised:
        handle.load(seed)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "a.json: not JSON: "),
        ("a.toml", "=", "a.toml: not TOML: "),
        ("a.yaml", "[", "a.yaml: not YAML: "),
        ("a.jsonl", '{"topic": "t"}\n{"topics": 1}', "a.jsonl: line 2.topics: there is no such key"),
        ("a.jsonl", "\n{", "a.jsonl: line 2: not JSON"),
        ("a.json", "[]", "a.json: the whole: []: expected object"),
        ("a.txt", "", "a.txt: expected a name that ends in .json"),
    ],
)
def test_files_that_are_none_are_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SeedError) as raised:
        read_seed(tmp_path / name)
    assert str(raised.value).startswith(message)


def test_yaml_without_its_package_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest)

    (tmp_path / "a.yaml").write_text("topics: {}")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SeedError, match=r"pip install 'ottla\[yaml\]'"):
        read_seed(tmp_path / "a.yaml")


def test_nothing_is_done_where_the_form_is_wrong(handle: Kafka) -> None:
    with pytest.raises(SeedError):
        handle.load({"topics": {"orders": 1}, "groups": {"shop": {"offset": {}}}})
    assert handle.topics == []


def test_published_schema_is_the_one_that_is_checked() -> None:
    published = Path(__file__).parents[2] / "docs" / "seed.schema.json"
    assert published.read_text() == json.dumps(SEED, indent=2) + "\n"


def test_seed_of_the_documentation_is_loaded(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "isolation.md").read_text()
    (shown,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.json").write_text(shown)
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
    bed = Testbed(settings=settings, data=tmp_path, deadline=20)
    bed.start()
    try:
        report = Kafka(bed).load(tmp_path / "shop.json")
        assert (report.topics, report.records, report.groups) == (2, 102, 1)
    finally:
        bed.stop()
