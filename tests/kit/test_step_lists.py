"""Scripts: lists of faults and actions on broker time, which stands unless the test moves it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.facts import MemberJoined
from ottla.testing import DeadlineExceeded, ScriptError
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.faults import Error
from ottla.testing.handle import Kafka
from ottla.testing.report import ReportMark, failure_sections
from ottla.testing.testbed import Testbed
from tests.docs.references import ROOT
from tests.kit.clusters import Replicated
from tests.kit.members import consumer, send

LATE = {"id": "late", "match": {"api": "Produce"}, "do": {"delay": 1}}


@pytest.fixture
def frozen(handle: Kafka) -> Kafka:
    handle.clock.freeze()
    return handle


def rules(kafka: Kafka) -> list[str]:
    return [each.id for each in kafka.faults]


def test_steps_come_at_their_moments_of_broker_time(frozen: Kafka) -> None:
    script = frozen.script(
        [
            {"id": "first", "at": "10s", "do": {"fault": LATE}},
            {"id": "last", "at": "1h", "do": {"remove": "late"}},
        ]
    )
    assert rules(frozen) == []

    frozen.clock.advance(9.999)
    assert rules(frozen) == []
    frozen.clock.advance(0.001)
    assert rules(frozen) == ["late"]
    assert script.runs == {"first": 1, "last": 0}
    frozen.clock.advance("1h")

    assert rules(frozen) == []
    assert script.is_done
    assert script.unused() == []


def test_a_jump_stops_at_each_step_in_order(frozen: Kafka, bed: Testbed) -> None:
    begin = frozen.clock.now()
    frozen.script(
        [
            {"at": "2d", "do": {"skew": {"node": frozen.node_ids[0], "by": "5m"}}},
            {"at": "1d", "do": {"fault": LATE}},
            {"every": "12h", "times": 3, "do": {"skew": {"node": frozen.node_ids[0], "by": 1}}},
        ]
    )

    frozen.clock.advance("8d")

    steps = bed.call(bed.steps.since_clear)
    hours = [(each.broker_ms - begin.timestamp() * 1000) / 3_600_000 for each in steps]
    assert hours == pytest.approx([12, 24, 24, 36, 48])
    assert "'step-2'" in steps[1].what  # Of one moment, the order of the list.
    assert (frozen.clock.now() - begin).days == 8


def test_a_step_without_a_moment_follows_the_one_before(frozen: Kafka) -> None:
    script = frozen.script(
        [
            {"do": {"fault": LATE}},
            {"at": "1s", "do": {"remove": "late"}},
            {"do": {"fault": "id=other,api=Fetch,observe"}},
        ]
    )

    assert rules(frozen) == ["late"]
    frozen.clock.advance(1)
    assert rules(frozen) == ["other"]
    assert script.is_done


def test_a_step_comes_after_hits_of_a_rule(frozen: Kafka) -> None:
    frozen.create_topic("orders", partitions=1)
    rule = {"id": "seen", "match": {"api": "Produce"}, "do": {"observe": True}}
    script = frozen.script(
        [
            {"do": {"fault": rule}},
            {"after": {"rule": "seen", "hits": 2}, "do": {"fault": {**LATE, "do": Error("NOT_LEADER_OR_FOLLOWER")}}},
        ]
    )

    send(frozen, "orders", b"a")
    assert script.runs["step-2"] == 0
    send(frozen, "orders", b"b")
    script.wait()

    assert rules(frozen) == ["seen", "late"]
    frozen.faults.clear()


def test_a_step_comes_after_a_fact_of_its_group(frozen: Kafka) -> None:
    frozen.create_topic("orders", partitions=1)
    script = frozen.script([{"after": {"fact": MemberJoined.__name__, "group": "sh*"}, "do": {"fault": LATE}}])
    with consumer(frozen, "other", "orders"):
        frozen.wait(lambda kafka: kafka.group("other").members, describe="a member has joined")
        assert not script.is_done
    with consumer(frozen, "shop", "orders"):
        script.wait()
    assert rules(frozen) == ["late"]


def test_steps_run_while_time_runs_by_itself(handle: Kafka) -> None:
    handle.clock.set_rate(1000)
    script = handle.script([{"at": "1s", "do": {"fault": LATE}}, {"every": "1s", "do": {"release": "late"}}])

    script.wait()

    assert script.is_done


def test_a_wall_time_is_a_moment_and_has_to_come(frozen: Kafka) -> None:
    frozen.clock.freeze(at=frozen.clock.now().replace(year=2030, month=1, day=1))
    script = frozen.script([{"at": "2030-01-03T00:00:00", "do": {"fault": LATE}}])
    with pytest.raises(ScriptError, match=r"step 'step-1': at 2029-12-31 has passed: broker time is 2030-01-01"):
        frozen.script([{"at": "2029-12-31", "do": {"fault": LATE}}])

    frozen.clock.advance("1d")
    assert not script.is_done
    frozen.clock.advance("2d")
    assert script.is_done


def test_what_did_not_run_is_said_with_the_reason(frozen: Kafka, bed: Testbed) -> None:
    script = frozen.script(
        [
            {"do": {"fault": LATE}},
            {"id": "end", "at": "10s", "do": {"remove": "late"}},
            {"do": {"remove": "late"}},
            {"after": "late", "do": {"release": "late"}},
            {"after": {"fact": "MemberJoined"}, "do": {"pause": 0}},
            {"at": "1h", "optional": True, "do": {"remove": "late"}},
        ]
    )
    frozen.clock.advance(4)

    sentences = [
        "script step 'end' (at 10s: remove late) never ran: broker time went on by 4 s since the script began",
        "script step 'step-3' (behind the step before it: remove late) never ran: the step before it had not run",
        "script step 'step-4' (after late: release late) never ran: rule 'late' had 0 of 1 hits",
        "script step 'step-5' (after MemberJoined: pause 0) never ran: no such MemberJoined came",
    ]
    assert script.unused() == sentences
    report = dict(bed.call(lambda: failure_sections(bed, ReportMark.now(bed))))
    assert all(each in report["ottla: faults"] for each in sentences)
    assert "script: 'step-1' (at once: fault" in report["ottla: faults"]
    with pytest.raises(DeadlineExceeded, match="1 of 6 steps have run"):
        script.wait(within=0)


def test_a_step_that_fails_is_reported_and_others_run(frozen: Kafka) -> None:
    steps = [{"do": {"pause": 99}}, {"do": {"fault": LATE}}, {"do": {"remove": "late"}}, {"do": {"release": "late"}}]
    script = frozen.script(steps)

    assert rules(frozen) == []
    sentence, of_rule = script.unused()
    assert of_rule.endswith("failed: RuleError: there is no rule 'late' now")
    assert "'step-1' (at once: pause 99) failed: NotRunningError: no broker 99 runs" in sentence


def test_a_script_ends_by_cancel_and_by_a_reset(frozen: Kafka) -> None:
    script = frozen.script([{"at": "1s", "do": {"fault": LATE}}])
    script.cancel()
    frozen.clock.advance(2)
    assert rules(frozen) == []

    script = frozen.script([{"at": "1s", "do": {"fault": LATE}}])
    frozen.reset()
    frozen.clock.advance(2)
    assert rules(frozen) == []


def test_coroutines_have_scripts_too(bed: Testbed) -> None:
    async def test() -> list[str]:
        kafka = KafkaAsync(bed)
        await kafka.clock.freeze()
        script = await kafka.script([{"at": "1s", "do": {"fault": LATE}}])
        await kafka.clock.advance(1)
        await script.wait_async()
        return [each.id for each in kafka.faults]

    assert asyncio.run(test()) == ["late"]


OF_DOCS = (ROOT / "docs/scripts.md").read_text().split("```yaml\n")[1].split("```")[0]
JSON = '[{"at": "10s", "do": {"fault": "id=lost,api=Produce,drop=response"}}]'


TOML = """
[[steps]]
at = "10s"
do.fault = "id=lost,api=Produce,drop=response"
"""


@pytest.mark.parametrize(("suffix", "text"), [("yaml", ""), ("json", JSON), ("toml", TOML)])
def test_a_script_is_read_from_a_file(frozen: Kafka, tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"outage.{suffix}"
    path.write_text(text or OF_DOCS)
    frozen.script(path)
    frozen.clock.advance("10s")
    assert rules(frozen) == ["lost"]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("outage.txt", "", "outage.txt: expected a name that ends in .json, .toml, .yaml, .yml"),
        ("outage.yaml", "steps: [", "outage.yaml: not YAML: "),
        ("outage.json", '{"steps": [{"do": {"kil": 1}}]}', "outage.json: step 'step-1': do: there is no 'kil'"),
        ("outage.json", '{"step": []}', "outage.json: step: there is no such key; did you mean 'steps'?"),
    ],
)
def test_what_is_wrong_with_a_file_has_its_name(
    frozen: Kafka, tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ScriptError) as refused:
        frozen.script(tmp_path / name)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([], "steps: a script without any does nothing"),
        ([{"at": "1s"}], "steps[0]: 'do' is missing"),
        ([{"att": 1, "do": {"kill": 1}}], "steps[0].att: there is no such key; did you mean 'at'?"),
        ([{"do": {"kil": 1}}], "step 'step-1': do: there is no 'kil'; did you mean 'kill'?"),
        ([{"do": {1: "kill"}}], "step 'step-1': do: there is no '1'"),
        ([{"do": {"kill": "1"}}], "step 'step-1': do.kill: '1': expected integer"),
        ([{"do": {"kill": 1, "stop": 1}}], "step 'step-1': do: {'kill': 1, 'stop': 1}: expected one of fault, remove"),
        ([{"at": "soon", "do": {"kill": 1}}], "step 'step-1': 'soon': expected seconds, a timedelta, or text"),
        ([{"at": 1, "every": 1, "do": {"kill": 1}}], "step 'step-1': it has at and every: expected one of them"),
        ([{"every": 0, "do": {"kill": 1}}], "step 'step-1': every: expected more than 0"),
        ([{"times": 2, "do": {"kill": 1}}], "step 'step-1': times: it is of steps with every"),
        ([{"after": "lost", "do": {"kill": 1}}], "step 'step-1': after: there is no rule 'lost', and no step adds it"),
        ([{"after": {"fact": "MemberJoin"}, "do": {"kill": 1}}], "there is no fact 'MemberJoin'; did you mean 'Memb"),
        ([{"after": {"fact": "MemberJoined", "grp": "a"}, "do": {"kill": 1}}], "after: MemberJoined has no 'grp'"),
        ([{"do": {"fault": "api=Fetsch,observe"}}], "step 'step-1': do.fault: api: 'Fetsch' is not served; did you"),
        ([{"do": {"link": {"do": "cut", "from": 1}}}], "do.link: expected from and to, or between for both ways"),
        ([{"do": {"disk": {"do": "full"}}}], "step 'step-1': do.disk: 'node' is missing"),
        ([{"id": "a", "do": {"kill": 1}}, {"id": "a", "do": {"kill": 1}}], "there are two steps 'a'"),
    ],
)
def test_what_is_wrong_is_one_sentence(frozen: Kafka, steps: list[Any], sentence: str) -> None:
    with pytest.raises(ScriptError) as refused:
        frozen.script(steps)
    assert sentence in str(refused.value)


def test_brokers_links_and_disks_fail_in_one_jump(cluster: Replicated) -> None:
    kafka, follower = cluster.kafka, cluster.followers[0]
    kafka.clock.freeze()
    script = kafka.script(
        [
            {"at": "1m", "do": {"kill": follower}},
            {"at": "2m", "do": {"restart": follower}},
            {"do": {"link": {"do": "delay", "between": cluster.followers, "ms": 1}}},
            {"at": "3m", "do": {"disk": {"do": "slow_fsync", "node": follower, "ms": 1}}},
            {"do": {"move_leader": {"topic": "orders", "partition": 0, "to": follower}}},
        ]
    )

    kafka.clock.advance("1m")
    assert not kafka.brokers[follower].is_running
    kafka.clock.advance("1h")

    assert script.unused() == []
    assert script.is_done
    assert kafka.partition("orders", 0).leader == follower
    assert len(kafka.links.in_force()) == 2
    assert kafka.disk(follower).in_force().fsync_ms == 1
