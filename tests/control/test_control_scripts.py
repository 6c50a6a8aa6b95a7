"""Scripts of faults over HTTP and on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing.control import script_routes
from tests.control.asking import Asker

LATE = {"id": "late", "match": {"api": "Produce"}, "do": {"delay": 1}}
BEGIN = "2026-11-23T12:00:00+00:00"


@pytest.fixture
def frozen(asker: Asker) -> Asker:
    asker.post("/v1/clock/freeze", {"at": BEGIN})
    return asker


def begun(asker: Asker, *steps: dict[str, Any]) -> Any:
    answer = asker.ask("POST", "/v1/scripts", {"steps": list(steps)})
    assert answer.status == 201, answer
    return answer.json


def rules(asker: Asker) -> list[str]:
    return [each["id"] for each in asker.get("/v1/faults")["faults"]]


def test_steps_run_at_their_moments_with_both_times(frozen: Asker) -> None:
    script = begun(frozen, {"do": {"fault": LATE}}, {"id": "end", "at": "1m", "do": {"remove": "late"}})
    path = f"/v1/scripts/{script['id']}"
    assert [(each["id"], each["when"], each["runs"]) for each in script["steps"]] == [
        ("step-1", "at once", 1),
        ("end", "at 1m", 0),
    ]
    assert (rules(frozen), script["is_done"], script["steps"][1]["do"]) == (["late"], False, {"remove": "late"})
    assert script["unused"][0].startswith("script step 'end' (at 1m: remove late) never ran: broker time went on by 0")

    frozen.post("/v1/clock/advance", {"by": "1h"})

    shown = frozen.get(path)
    assert (rules(frozen), shown["is_done"], shown["unused"]) == ([], True, [])
    assert [(each["step"], each["broker_at"], each["error"]) for each in shown["ran"]] == [
        ("step-1", "2026-11-23T12:00:00.000+00:00", None),
        ("end", "2026-11-23T12:01:00.000+00:00", None),
    ]
    assert all(each["at"] != each["broker_at"] for each in shown["ran"]), "the machine's time goes on by itself"
    assert frozen.get("/v1/scripts")["scripts"] == [shown]
    events = [each for each in frozen.ask("GET", "/v1/events?wait_ms=0").lines if each["kind"].startswith("script_")]
    assert [(each["kind"], each.get("step")) for each in events][-3:] == [
        ("script_begun", None),
        ("script_step", "step-1"),
        ("script_step", "end"),
    ]


def test_end_of_a_script_is_waited_for(frozen: Asker) -> None:
    script = begun(frozen, {"at": "1m", "do": {"fault": LATE}}, {"do": {"release": "late"}})
    wait = {"for": "script-done", "script": script["id"], "within_ms": 10}
    late = frozen.ask("POST", "/v1/wait", wait)
    assert (late.problem, late.json["state"]) == ((408, "deadline-exceeded"), "0 of 2 steps have run")
    assert "never ran" in late.json["missing"][0]
    frozen.post("/v1/clock/advance", {"by": "1m"})

    assert frozen.post("/v1/wait", wait)["script"]["is_done"]
    assert frozen.ask("POST", "/v1/wait", {**wait, "script": "no"}).problem == (404, "no-such-script")
    assert frozen.ask("POST", "/v1/wait", {"for": "script-done"}).problem == (400, "wrong-value")


def test_hits_of_rules_that_a_script_adds_are_events(frozen: Asker) -> None:
    begun(frozen, {"do": {"fault": {"id": "seen", "match": {"api": "Metadata"}, "do": {"observe": True}}}})
    script = begun(frozen, {"after": "seen", "do": {"fault": LATE}})
    frozen.post("/v1/topics", {"name": "orders", "partitions": 1})

    AdminClient({"bootstrap.servers": frozen.get("/v1")["bootstrap"]}).list_topics("orders", timeout=20)

    frozen.post("/v1/wait", {"for": "script-done", "script": script["id"]})
    assert rules(frozen) == ["seen", "late"]
    assert "fault_hit" in [each["kind"] for each in frozen.ask("GET", "/v1/events?wait_ms=0").lines]


def test_cancel_and_reset_end_a_script(frozen: Asker) -> None:
    first = begun(frozen, {"at": "1s", "do": {"fault": LATE}})
    cancelled = frozen.post(f"/v1/scripts/{first['id']}/cancel", {})
    assert (cancelled["is_cancelled"], cancelled["is_done"]) == (True, False)
    second = begun(frozen, {"at": "1s", "do": {"fault": LATE}})
    assert [each["id"] for each in frozen.get("/v1/scripts")["scripts"]] == [first["id"], second["id"]]

    frozen.post("/v1/reset", {})

    frozen.post("/v1/clock/advance", {"by": "1m"})
    assert (rules(frozen), frozen.get("/v1/scripts")) == ([], {"scripts": []})
    for method, path in (("GET", ""), ("POST", "/cancel")):
        assert frozen.ask(method, f"/v1/scripts/{second['id']}{path}", {}).problem == (404, "no-such-script")


def test_end_of_a_test_names_steps_that_never_ran(frozen: Asker) -> None:
    begun(
        frozen,
        {"at": "1h", "do": {"kill": 0}},
        {"do": {"pause": 7}, "at": 0},
        {"at": "2h", "optional": True, "do": {"kill": 0}},
    )

    ended = frozen.post("/v1/tests", {"name": "t", "phase": "end", "clear_faults": True})

    never, failed = ended["unused_faults"]
    assert never.startswith("script step 'step-1' (at 1h: kill 0) never ran")
    assert failed.startswith("script step 'step-2' (at 0: pause 7) failed: NotRunningError: no broker 7 runs")
    assert frozen.get("/v1/scripts") == {"scripts": []}


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        ([], "wrong-script", "steps: a script without any does nothing"),
        ({}, "wrong-script", "'steps' is missing"),
        ("kill", "wrong-value", "expected a list of steps, or an object with steps"),
        ([{"do": {"kil": 1}}], "wrong-script", "step 'step-1': do: there is no 'kil'; did you mean 'kill'?"),
        ([{"after": "lost", "do": {"kill": 0}}], "wrong-script", "after: there is no rule 'lost', and no step adds it"),
        ([{"at": "2020-01-01", "do": {"kill": 0}}], "wrong-script", "at 2020-01-01 has passed: broker time is 2026-11"),
        ([{"do": {"fault": {**LATE, "do": {"call": "x"}}}}], "wrong-script", "step 'step-1': do.fault: "),
        ([{"do": {"fault": {"match": {"when": "x"}, "do": {"delay": 1}}}}], "wrong-script", "do.fault: when: "),
        ([{"do": {"kill": 0}}] * 1001, "wrong-value", "steps: 1001 steps, at most 1000"),
    ],
)
def test_script_that_cannot_be_is_refused_as_a_whole(frozen: Asker, body: Any, kind: str, sentence: str) -> None:
    refused = frozen.ask("POST", "/v1/scripts", body)

    assert refused.problem == (400, kind)
    assert sentence in refused.json["detail"]
    assert (frozen.get("/v1/scripts"), rules(frozen)) == ({"scripts": []}, [])


def test_scripts_since_a_reset_are_bounded(frozen: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_routes, "SCRIPTS_MAX", 1)
    begun(frozen, {"do": {"fault": LATE}})

    assert frozen.ask("POST", "/v1/scripts", [{"do": {"remove": "late"}}]).problem == (409, "wrong-state")
    frozen.post("/v1/reset", {})
    begun(frozen, {"do": {"fault": LATE}})


# The command line.


def test_script_of_a_file_is_begun_listed_and_cancelled(frozen: Asker, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "outage.yaml"
    path.write_text(
        "steps:\n"
        "  - do: {fault: {id: late, match: {api: Produce}, do: {delay: 1}}}\n"
        "  - at: 2026-11-24T00:00:00\n"
        "    do: {remove: late}\n"
    )

    status, said = run("script", str(path))

    script_id = said.partition(" ")[0]
    assert (status, said.splitlines()[0]) == (0, f"{script_id} (runs)")
    assert said.splitlines()[2].split()[:3] == ["step-1", "at", "once"]
    assert "2026-11-23T12:00:00.000+00:00" in said
    assert run("scripts")[1].splitlines()[1].split() == [script_id, "runs", "1", "2"]
    assert run("wait", "script-done", "--script", script_id, "--within", "0.01")[0] == 1
    assert run("script", "--id", script_id, "--cancel")[1].startswith(f"{script_id} (cancelled)")
    assert json.loads(run("script", "--id", script_id, "--json")[1])["is_cancelled"]
    assert run("script", "--id", "no")[0] == 1


def test_file_that_is_no_script_is_one_sentence(frozen: Asker, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "outage.json"
    path.write_text('[{"do": {"kil": 1}}]')

    assert run("script", str(path)) == (
        1,
        "ottla: outage.json: step 'step-1': do: there is no 'kil'; did you mean 'kill'?\n",
    )
    assert run("script", str(tmp_path / "none.json")) == (
        1,
        f"ottla: cannot read {tmp_path / 'none.json'}: it does not exist\n",
    )
    assert run("script", "--cancel")[0] == 2
