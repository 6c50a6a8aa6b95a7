"""Each row over HTTP, on a broker that serves clients."""

import json
import threading
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.broker.admin.http import HttpRequest
from ottla.testing.audit import recorder
from ottla.testing.control.event_log import EventLog
from ottla.testing.control.router import Router, Row
from ottla.testing.control.routes import ROWS
from ottla.testing.control.service import ControlService
from ottla.testing.testbed import Testbed
from tests.control.asking import Asker, produce, producing


def test_about_says_what_is_served_and_what_is_not(asker: Asker, bed: Testbed) -> None:
    about = asker.get("/v1")

    assert (about["bootstrap"], about["cluster_id"]) == (bed.hosted.bootstrap, bed.hosted.cluster_id)
    assert about["brokers"] == [0]
    assert {"reset", "topics", "groups", "faults", "wait", "events"} <= set(about["features"])
    assert about["not_served"] == [f"{row.method} {row.path}" for row in ROWS if row.handler is None]


def test_topics_are_made_changed_and_deleted(asker: Asker) -> None:
    made = asker.ask("POST", "/v1/topics", {"name": "orders", "partitions": 2, "configs": {"retention.ms": 1000}})
    assert made.status == 201
    assert (made.json["configs"], len(made.json["partitions"])) == ({"retention.ms": "1000"}, 2)
    assert asker.ask("POST", "/v1/topics", {"name": "orders"}).problem == (409, "kafka-error")

    asker.post("/v1/topics/orders/records", {"records": [{"value": "a"}, {"value": "b"}], "partition": 0})
    changed = asker.ask("PATCH", "/v1/topics/orders", {"partitions": 3, "delete_records_before": {"0": 1}}).json

    assert [each["log_start_offset"] for each in changed["partitions"]] == [1, 0, 0]
    assert asker.get("/v1/topics") == {"topics": ["orders"]}
    assert asker.ask("DELETE", "/v1/topics/orders").json == {"topics": []}
    assert asker.ask("GET", "/v1/topics/orders").problem == (404, "no-such-topic")


def test_group_is_shown_with_its_history(asker: Asker, bed: Testbed) -> None:
    produce(bed, "orders", b"a", b"b")
    config = {"bootstrap.servers": bed.hosted.bootstrap, "group.id": "shop", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    assert consumer.poll(20) is not None

    group = asker.post("/v1/wait", {"for": "group-stable", "group": "shop", "members": 1})["group"]
    assert (group["state"], group["members"][0]["assignment"]) == ("Stable", {"orders": [0]})
    assert asker.get("/v1/groups")["groups"] == [
        {"group_id": "shop", "state": "Stable", "generation": group["generation"], "members": 1}
    ]
    assert asker.get("/v1/groups/shop/history")["rebalances"][-1]["cause"] == "member joined"
    consumer.close()
    offsets = asker.post("/v1/wait", {"for": "group-empty", "group": "shop"})["group"]["offsets"]

    assert [each["topic"] for each in offsets] == ["orders"]
    assert asker.ask("GET", "/v1/groups/shap").json["detail"] == "there is no group 'shap'; there is shop"


def test_fault_is_added_hit_released_and_removed(asker: Asker, bed: Testbed) -> None:
    rule = {"match": {"api": "Produce", "topic": "orders"}, "do": {"hold": True}}
    (added,) = asker.post("/v1/faults", rule)["faults"]
    produced = producing(bed, "orders", b"held")

    met = asker.post("/v1/wait", {"for": "fault-hits", "fault": added["id"]})
    assert (met["fault"]["hits"], met["fault"]["held"]) == (1, 1)
    assert asker.post(f"/v1/faults/{added['id']}/release", {}) == {"released": 1}
    produced.join(20)

    shown = asker.get(f"/v1/faults/{added['id']}?hits=5")
    assert [(hit["api"], hit["action"]) for hit in shown["hit_log"]] == [("Produce", "hold")]
    assert asker.ask("DELETE", f"/v1/faults/{added['id']}").status == 200
    assert asker.ask("DELETE", f"/v1/faults/{added['id']}").problem == (404, "no-such-fault")


def test_rules_of_one_request_are_added_all_or_none(asker: Asker) -> None:
    wrong = {"id": "net", "rules": ["api=Fetch,delay=5", {"match": {"api": "Fetsh"}, "do": {"delay": 5}}]}
    refused = asker.ask("POST", "/v1/faults", wrong)
    assert refused.problem == (400, "wrong-rule")
    assert "did you mean 'Fetch'?" in refused.json["detail"]
    assert asker.get("/v1/faults") == {"faults": []}

    both = asker.post("/v1/faults", {"id": "net", "rules": ["api=Fetch,delay=5", {"do": {"delay": 5}}]})

    assert [each["id"] for each in both["faults"]] == ["net-1", "net-2"]


@pytest.mark.parametrize("rule", [{"do": {"call": "print"}}, {"match": {"when": "1"}, "do": {"delay": 1}}])
def test_no_code_comes_in(asker: Asker, rule: Any) -> None:
    refused = asker.ask("POST", "/v1/faults", rule)

    assert refused.problem == (400, "wrong-value")
    assert "functions, for tests in Python" in refused.json["detail"]


def test_rule_is_in_force_when_the_answer_leaves(asker: Asker, bed: Testbed) -> None:
    produce(bed, "orders", b"first")
    asker.post("/v1/faults", "api=Produce,topic=orders,error=INVALID_RECORD")
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": bed.hosted.bootstrap})
    producer.produce("orders", b"second", on_delivery=lambda error, _: refused.append(error.name()))

    assert (producer.flush(20), refused) == (0, ["INVALID_RECORD"])


def test_wait_that_is_over_says_what_is_missing(asker: Asker) -> None:
    asker.post("/v1/faults", {"id": "lost", "match": {"api": "Produce", "topic": "order"}, "do": {"drop": "response"}})

    late = asker.ask("POST", "/v1/wait", {"for": "fault-hits", "fault": "lost", "hits": 2, "within_ms": 50})

    assert late.problem == (408, "deadline-exceeded")
    assert late.json["wanted"] == "fault 'lost' did not have 2 hits"
    assert late.json["missing"] == ["2 of 2 hits"]
    assert late.json["state"].endswith("never hit: no Produce request came that it could match")
    assert late.json["text"].startswith("fault 'lost' did not have 2 hits within 0.1 s\n  now ")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "for"),
        ({"for": "group-stabel"}, "for"),
        ({"for": "group-stable"}, "group"),
        ({"for": "group-stable", "group": "g", "lag": 1}, "lag"),
        ({"for": "group-stable", "group": "g", "within_ms": 60_001}, "within_ms"),
        ({"for": "topic-records", "topic": "t", "count": -1}, "count"),
        ({"for": "group-committed", "group": "g", "topic": "t", "offsets": {"x": 1}}, "offsets.x"),
    ],
)
def test_wait_that_can_never_be_is_refused(asker: Asker, body: Any, field: str) -> None:
    refused = asker.ask("POST", "/v1/wait", body)

    assert (refused.problem, refused.json["field"]) == ((400, "wrong-value"), field)


def test_events_are_numbered_and_come_as_they_happen(asker: Asker, bed: Testbed) -> None:
    last = asker.ask("GET", "/v1/events?wait_ms=0").lines[-1:]
    after = last[0]["number"] if last else 0
    threading.Timer(0.2, asker.post, ("/v1/faults", "api=Produce,topic=orders,delay=1")).start()

    (first,) = asker.ask("GET", f"/v1/events?after={after}&wait_ms=20000").lines
    produce(bed, "orders", b"a")
    hit = asker.ask("GET", f"/v1/events?after={after + 1}&wait_ms=20000").lines[0]

    assert (first["number"], first["kind"]) == (after + 1, "fault_added")
    assert (hit["number"], hit["kind"], hit["client_id"]) == (after + 2, "fault_hit", "billing")
    assert asker.ask("GET", f"/v1/events?after={after + 99}&wait_ms=1").lines == []


def test_wire_and_report_show_the_last_requests(asker: Asker, bed: Testbed) -> None:
    asker.post("/v1/tests", {"name": "test_orders", "phase": "begin"})
    produce(bed, "orders", b"secret value")
    asker.post("/v1/faults", "api=Fetch,topic=orders,delay=1")

    (last,) = asker.get("/v1/wire?last=1")["requests"]
    report = asker.get("/v1/report")
    ended = asker.post("/v1/tests", {"name": "test_orders", "phase": "end"})

    assert (last["api"], last["error"], last["client_id"]) == ("Produce", "NONE", "billing")
    assert report["test"] == "test_orders"
    assert "Produce" in str(report)
    assert "secret value" not in str(report)
    assert [each.partition(" never hit")[0] for each in ended["unused_faults"]] == [
        "'fault-1' ({api: Fetch, topic: orders} → delay)"
    ]


def test_reset_names_the_clients_that_it_cuts(asker: Asker, bed: Testbed) -> None:
    producer = Producer({"bootstrap.servers": bed.hosted.bootstrap, "client.id": "left"})
    producer.produce("orders", b"a")
    producer.flush(20)

    answer = asker.post("/v1/reset", {})

    assert (answer["topics"], len(answer["leaks"]) >= 1) == (1, True)
    assert all(" left#" in each and each.endswith("was not closed") for each in answer["leaks"])


def test_feature_that_is_not_served_is_501(bed: Testbed) -> None:
    """A row without a handler. There is none at the moment."""
    router = Router(ControlService(bed, EventLog()), [Row("GET", "/v1/later", "Something else.")], bed.hosted.log)

    refused = bed.run(router.answer(HttpRequest("/v1/later", {}, {})))

    assert (refused.status, json.loads(b"".join(refused.body))["type"].rpartition(":")[2]) == (501, "not-served")
    assert [row for row in ROWS if row.handler is None] == []


def test_groups_are_changed_as_by_an_administrator(asker: Asker, bed: Testbed) -> None:
    produce(bed, "orders", b"a", b"b")
    set_to = asker.ask("POST", "/v1/groups/shop/offsets", {"topic": "orders", "offsets": {"0": 1}}).json
    assert set_to["offsets"] == [{"topic": "orders", "partition": 0, "offset": 1, "lag": 1}]
    own = {"group.id": "shop", "client.id": "c-1", "log_level": 0}
    member = Consumer({"bootstrap.servers": bed.hosted.bootstrap} | own)
    member.subscribe(["orders"])
    member.poll(20)
    generation = asker.get("/v1/groups/shop")["generation"]

    started = asker.ask("POST", "/v1/groups/shop/rebalance", {}).json
    assert (started["state"], started["generation"]) == ("PreparingRebalance", generation)
    assert asker.ask("DELETE", "/v1/groups/shop").problem == (400, "kafka-error")
    evicted = asker.ask("POST", "/v1/groups/shop/evict", {"member": "c-1", "reason": "by hand"}).json
    assert (evicted["member_id"].startswith("c-1-"), evicted["group"]["members"]) == (True, [])
    assert asker.ask("POST", "/v1/groups/shop/evict", {"member": "c-1"}).problem == (400, "kafka-error")
    member.close()

    assert asker.ask("POST", "/v1/groups/shop/rebalance", {}).problem == (400, "kafka-error")
    assert asker.ask("POST", "/v1/groups/shop/offsets", {"topic": "orders", "offsets": {"7": 1}}).problem[0] == 400
    assert asker.ask("DELETE", "/v1/groups/shop").json == {"groups": []}
    assert asker.ask("POST", "/v1/groups/shop/rebalance", {}).problem == (404, "no-such-group")


def test_jobs_of_logs_are_done_at_once(asker: Asker) -> None:
    """In frozen time the brokers' own rounds, ten a second, find nothing before."""
    asker.ask("POST", "/v1/clock/freeze", {})
    configs = {"cleanup.policy": "compact,delete"}
    asker.ask("POST", "/v1/topics", {"name": "orders", "partitions": 1, "configs": configs})
    records = [{"key": "alice", "value": "book"}, {"key": "alice", "value": "cup"}]
    asker.post("/v1/topics/orders/records", {"records": records})

    (rolled,) = asker.ask("POST", "/v1/topics/orders/roll", {}).json["partitions"]
    (compacted,) = asker.ask("POST", "/v1/topics/orders/compact", {}).json["partitions"]

    assert (rolled["segments"], compacted["bytes_removed"] > 0) == (2, True)
    assert [each["value"] for each in asker.get("/v1/topics/orders/records")["records"]] == [{"text": "cup"}]
    changed = asker.ask("PATCH", "/v1/topics/orders", {"configs": {"cleanup.policy": None, "retention.ms": 5}}).json
    assert changed["configs"] == {"retention.ms": "5"}
    assert asker.ask("POST", "/v1/topics/orders/compact", {}).problem == (400, "kafka-error")
    assert asker.ask("POST", "/v1/topics/orders/retention", {}).status == 200
    assert asker.ask("POST", "/v1/topics/other/roll", {}).problem == (404, "no-such-topic")


def test_time_is_frozen_moved_set_and_real_again(asker: Asker) -> None:
    frozen = asker.ask("POST", "/v1/clock/freeze", {"at": "2026-11-23T12:00:00+00:00"}).json
    assert (frozen["now"], frozen["is_frozen"]) == ("2026-11-23T12:00:00.000+00:00", True)
    assert asker.get("/v1")["clock"] == "moved"

    fired = asker.post("/v1/clock/advance", {"by": "8d", "sessions": "expire"})["fired"]

    assert fired
    assert {"at", "node", "kind", "what"} == set(fired[0])
    assert asker.get("/v1/clock")["now"] == "2026-12-01T12:00:00.000+00:00"
    assert asker.ask("POST", "/v1/clock/resume", {}).json["is_frozen"] is False
    assert asker.ask("POST", "/v1/clock/set", {"at": "2020-01-01"}).json["now"].startswith("2020-01-01T00:00")
    asker.post("/v1/reset", {})
    assert asker.get("/v1/clock")["is_real"]


def test_clocks_run_at_a_rate_drift_and_go_to_the_next_timer(asker: Asker) -> None:
    assert asker.post("/v1/clock/rate", {"rate": 2})["rate"] == 2
    asker.post("/v1/clock/freeze", {"at": "2026-11-23T12:00:00+00:00"})
    configs = {"message.timestamp.type": "LogAppendTime"}
    asker.ask("POST", "/v1/topics", {"name": "orders", "partitions": 1, "configs": configs})
    assert asker.post("/v1/clock/include", {"names": ["tokens", "replication"]})["included"] == [
        "replication",
        "tokens",
    ]
    asker.post("/v1/clock/skew", {"node": 0, "by": "-5m"})
    asker.post("/v1/clock/drift", {"node": 0, "rate": 1.5})
    asker.post("/v1/clock/advance", {"by": "10m"})
    asker.post("/v1/topics/orders/records", {"records": [{"value": "book"}]})

    (stored,) = asker.get("/v1/topics/orders/records")["records"]

    now = datetime.fromisoformat(asker.get("/v1/clock")["now"])
    assert stored["timestamp"] == pytest.approx(now.timestamp() * 1000, rel=0, abs=2), (
        "5 minutes behind, and 5 minutes faster since"
    )
    (fired,) = [x for x in asker.post("/v1/clock/next", {"kind": "retention"})["fired"] if x["kind"] == "retention"]
    assert datetime.fromisoformat(fired["at"]) > now
    kinds = [each["kind"] for each in asker.ask("GET", "/v1/events?wait_ms=0").lines]
    assert [each for each in kinds if each.startswith("clock_")][-7:] == [
        "clock_rate",
        "clock_freeze",
        "clock_include",
        "clock_skew",
        "clock_drift",
        "clock_advance",
        "clock_next",
    ]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("include", {"names": ["lags"]}, "names[0]"),
        ("include", {}, "names"),
        ("rate", {"rate": 0}, "rate"),
        ("rate", {"rate": 1e300}, "rate"),
        ("rate", {"rate": 21, "sessions": "expire"}, "rate"),
        ("drift", {"node": 0, "rate": -1}, "rate"),
        ("drift", {"node": 0, "rate": 1e-9}, "rate"),
        ("drift", {"node": 7, "rate": 2}, "node"),
        ("skew", {"node": 7, "by": "1s"}, "node"),
        ("skew", {"node": 0, "by": "-99999d"}, "by"),
        ("skew", {"node": 0, "by": "soon"}, "by"),
        ("next", {"kind": "nap"}, "kind"),
        ("next", {"sessions": "expire", "expired": ["a"]}, "expired"),
        ("advance", {"by": "-1s"}, "by"),
        ("advance", {"by": "soon"}, "by"),
        ("advance", {"by": "1s", "sessions": "some"}, "sessions"),
        ("advance", {"by": "1s", "sessions": "expire", "expired": ["a"]}, "expired"),
        ("freeze", {"at": "noon"}, "at"),
        ("set", {}, "at"),
        ("set", {"at": "99999-01-01"}, "at"),
        ("set", {"at": "1969-12-31"}, "at"),
        ("set", {"at": "0001-01-01T00:00:00+14:00"}, "at"),
        ("set", {"at": "9999-12-31T23:59:59-14:00"}, "at"),
        ("advance", {"by": "5000000d"}, "by"),
        ("advance", {"by": "9" * 400 + "d"}, "by"),
        ("advance", {"by": "61m", "every": True}, "every"),
    ],
)
def test_times_that_are_none_are_named(asker: Asker, path: str, body: dict[str, Any], field: str) -> None:
    refused = asker.ask("POST", f"/v1/clock/{path}", body)

    assert (refused.problem, refused.json["field"]) == ((400, "wrong-value"), field)
    assert len(refused.json["detail"]) < 200
    assert asker.get("/v1/clock")["is_real"]


def test_seed_is_loaded_or_refused_with_the_path(asker: Asker) -> None:
    seed = {"topics": {"orders": {"partitions": 1, "records": [{"value": "a"}]}}}
    assert asker.ask("PUT", "/v1/seed", seed).json == {"topics": 1, "records": 1, "groups": 0}
    assert [each["value"] for each in asker.get("/v1/topics/orders/records")["records"]] == [{"text": "a"}]

    refused = asker.ask("PUT", "/v1/seed", {"topics": {"bills": {"partition": 1}}})

    assert refused.problem == (400, "wrong-value")
    assert "partition" in refused.json["detail"]
    assert asker.ask("PUT", "/v1/seed", []).problem == (400, "wrong-value")


def test_seed_gives_no_file_of_the_broker(asker: Asker) -> None:
    seed = {"topics": {"orders": {"partitions": 1, "records": [{"file": __file__}]}}}

    refused = asker.ask("PUT", "/v1/seed", seed)

    assert (refused.problem, "names no files" in refused.json["detail"]) == ((400, "wrong-value"), True)
    assert asker.get("/v1/topics/orders/records") == {"records": []}


def test_audit_gives_what_a_program_has_done_wrong(asker: Asker, bed: Testbed) -> None:
    asker.ask("POST", "/v1/topics", {"name": "orders", "configs": {"max.message.bytes": 100}})
    assert asker.get("/v1/audit") == {"findings": [], "unjudged": None}
    produce(bed, "orders", bytes(1000))

    found = asker.get("/v1/audit")["findings"]

    assert [(each["kind"], each["where"], each["client_id"]) for each in found] == [("P8", "orders-0", "billing")]


def test_audit_says_what_it_has_not_judged(asker: Asker, bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "CONNECTIONS_MAX", 0)
    produce(bed, "orders", b"a")

    assert "connections after the first 0 were not recorded" in asker.get("/v1/audit")["unjudged"]


def test_paused_broker_answers_when_it_goes_on(asker: Asker, bed: Testbed) -> None:
    assert asker.ask("POST", "/v1/brokers/0/pause", {}).json == {"brokers": [0]}
    waiting = producing(bed, "orders", b"a")
    assert asker.ask("POST", "/v1/brokers/0/resume", {}).json == {"brokers": [0]}
    waiting.join(20)
    assert [each["value"] for each in asker.get("/v1/topics/orders/records")["records"]] == [{"text": "a"}]


def test_leader_moves_only_to_brokers_that_are_there(asker: Asker) -> None:
    asker.ask("POST", "/v1/topics", {"name": "orders", "partitions": 1})
    assert asker.ask("POST", "/v1/partitions/orders/0/leader", {"to": 0}).json["partitions"][0]["leader"] == 0
    assert asker.ask("POST", "/v1/partitions/orders/0/leader", {"to": 7}).problem == (400, "wrong-value")
    assert asker.ask("POST", "/v1/partitions/orders/9/leader", {"to": 0}).problem == (404, "no-such-partition")


def test_a_broker_by_itself_is_not_killed(asker: Asker) -> None:
    assert asker.ask("POST", "/v1/brokers/0/kill", {}).problem == (409, "wrong-state")
    assert asker.ask("POST", "/v1/brokers/7/kill", {}).problem == (404, "no-such-broker")


def test_wrong_paths_and_methods_are_named(asker: Asker) -> None:
    wrong = asker.ask("PUT", "/v1/topics", {})
    assert (wrong.problem, wrong.headers["allow"]) == ((405, "wrong-method"), "GET, POST")
    assert asker.ask("GET", "/v1/topic").json["detail"].startswith("there is no such path; did you mean '/v1/topics'?")
    assert asker.ask("OPTIONS", "/v1/topics").status == 405
    assert asker.ask("GET", "/v1/topics/%ff").problem == (400, "wrong-value")
