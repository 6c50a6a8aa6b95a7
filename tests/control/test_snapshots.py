"""Snapshots over HTTP."""

import signal
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.conditions import GivenCondition
from ottla.testing.control import snapshot_routes
from ottla.testing.control.serving import SNAPSHOTS
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.testbed import Testbed
from tests.control.asking import Asker, opened_control, produce
from tests.control.test_serving import TestingServe, asker_of

RULE = {"id": "late", "match": {"api": "Produce"}, "do": {"delay": 1}}


@pytest.fixture(autouse=True)
def no_snapshots(bed: Testbed) -> Any:
    yield
    bed.call(bed.remove_snapshots)


def values(asker: Asker, topic: str = "orders") -> list[str]:
    return [each["value"]["text"] for each in asker.get(f"/v1/topics/{topic}/records")["records"]]


def hits(asker: Asker) -> list[str]:
    return [each["fault"] for each in asker.ask("GET", "/v1/events?wait_ms=0").lines if each["kind"] == "fault_hit"]


def test_state_is_kept_and_given_again(asker: Asker, bed: Testbed) -> None:
    produce(bed, "orders", b"book")
    taken = asker.ask("PUT", "/v1/snapshots/ordered%20book", {})
    assert (taken.status, taken.json["name"]) == (200, "ordered book")
    assert asker.get("/v1/snapshots") == {"snapshots": ["ordered book"]}

    for _ in range(2):
        produce(bed, "orders", b"ghost")
        assert values(asker) == ["book", "ghost"]
        restored = asker.post("/v1/snapshots/ordered%20book/restore", {})
        assert (restored["name"], restored["topics"]) == ("ordered book", 1)
        assert values(asker) == ["book"]

    assert asker.ask("DELETE", "/v1/snapshots/ordered%20book").json == {"snapshots": []}
    kinds = [each["kind"] for each in asker.ask("GET", "/v1/events?wait_ms=0").lines]
    assert (kinds.count("snapshot"), kinds.count("restore")) == (1, 2)


def test_snapshots_that_are_not_there_are_named(asker: Asker) -> None:
    asker.ask("PUT", "/v1/snapshots/seeded", {})
    for method, path in (("POST", "/v1/snapshots/seed/restore"), ("DELETE", "/v1/snapshots/seed")):
        refused = asker.ask(method, path, {} if method == "POST" else None)
        assert refused.problem == (404, "no-such-snapshot")
        assert refused.json["detail"] == "there is no snapshot 'seed', only seeded"

    wrong = asker.ask("POST", "/v1/snapshots/seeded/restore", {"members": "stay"})
    assert (wrong.problem, wrong.json["field"]) == ((400, "wrong-value"), "members")
    assert asker.ask("PUT", f"/v1/snapshots/{'x' * 201}", {}).problem == (400, "wrong-value")


def test_number_of_snapshots_is_bounded(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_routes, "SNAPSHOTS_MAX", 1)
    assert asker.ask("PUT", "/v1/snapshots/one", {}).status == 200
    assert asker.ask("PUT", "/v1/snapshots/one", {}).status == 200
    assert asker.ask("PUT", "/v1/snapshots/two", {}).problem == (409, "wrong-state")


def test_hits_of_restored_rules_are_events(asker: Asker, bed: Testbed) -> None:
    asker.post("/v1/faults", RULE)
    asker.ask("PUT", "/v1/snapshots/ruled", {})
    before = len(hits(asker))
    for _ in range(2):
        asker.post("/v1/snapshots/ruled/restore", {})
    produce(bed, "orders", b"book")

    assert hits(asker)[before:] == ["late"]


def test_hits_of_rules_of_a_seed_are_events(asker: Asker, bed: Testbed) -> None:
    before = len(hits(asker))
    assert asker.ask("PUT", "/v1/seed", {"rules": [RULE]}).status == 200
    produce(bed, "orders", b"book")

    assert hits(asker)[before:] == ["late"]


def test_several_brokers_are_restored_together(tmp_path: Path) -> None:
    bed = Testbed(brokers=3, settings=cluster_settings(3), data=tmp_path, deadline=20)
    bed.start()
    try:
        with opened_control(bed) as control:
            asker = Asker(control.url)
            produce(bed, "orders", b"book")
            assert asker.ask("PUT", "/v1/snapshots/seeded", {}).status == 200
            produce(bed, "orders", b"ghost")
            assert asker.post("/v1/snapshots/seeded/restore", {})["topics"] == 1
            assert values(asker) == ["book"]

            asker.post("/v1/topics", {"name": "alone", "partitions": 1, "replication_factor": 1})
            alone = Kafka(bed).partition("alone", 0)
            asker.post(f"/v1/brokers/{alone.leader}/kill", {})
            bed.run(bed.wait(GivenCondition(lambda: alone.leader is None, "it has no leader"), None))
            refused = asker.ask("PUT", "/v1/snapshots/seeded", {})
    finally:
        bed.stop()

    assert refused.problem == (409, "wrong-state")
    assert refused.json["detail"].startswith("alone-0 has no leader at the moment")


def test_files_of_a_killed_broker_are_removed(tmp_path: Path) -> None:
    arguments = ("--control", "127.0.0.1:0", "--control-file", str(tmp_path / "control.json"))
    files = tmp_path / "data" / SNAPSHOTS
    for ended in (signal.SIGKILL, signal.SIGTERM):
        serving = TestingServe(tmp_path, *arguments)
        try:
            asker = asker_of(serving)
            assert asker.get("/v1/snapshots") == {"snapshots": []}
            assert not files.exists()
            asker.ask("POST", "/v1/topics", {"name": f"topic-{ended.name}"})
            assert asker.ask("PUT", "/v1/snapshots/made", {}).status == 200
            assert files.exists()
            assert asker.post("/v1/snapshots/made/restore", {})["topics"] == 0
        finally:
            serving.process.send_signal(ended)
            serving.process.wait(30)

    assert not files.exists()
