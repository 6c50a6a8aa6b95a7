"""The tests of scripts, with brokers in another process."""

from datetime import timedelta

import pytest

from ottla.testing import ScriptError
from ottla.testing.faults import Error
from ottla.testing.handle import Kafka
from ottla.testing.remote.async_handle import RemoteKafkaAsync
from ottla.testing.remote.broker_process import BrokerProcess
from ottla.testing.remote.scripts import script_body
from tests.kit.test_step_lists import (
    LATE,
    frozen,
    rules,
    test_a_script_ends_by_cancel_and_by_a_reset,
    test_a_script_is_read_from_a_file,
    test_a_step_comes_after_a_fact_of_its_group,
    test_a_step_comes_after_hits_of_a_rule,
    test_a_step_that_fails_is_reported_and_others_run,
    test_a_step_without_a_moment_follows_the_one_before,
    test_a_wall_time_is_a_moment_and_has_to_come,
    test_brokers_links_and_disks_fail_in_one_jump,
    test_steps_come_at_their_moments_of_broker_time,
    test_steps_run_while_time_runs_by_itself,
    test_what_is_wrong_is_one_sentence,
    test_what_is_wrong_with_a_file_has_its_name,
)
from tests.shared.test_same_faults import cluster, kafka, three, three_process
from tests.shared.test_same_handle import handle, process

__all__ = [
    "cluster",
    "frozen",
    "handle",
    "kafka",
    "process",
    "test_a_script_ends_by_cancel_and_by_a_reset",
    "test_a_script_is_read_from_a_file",
    "test_a_step_comes_after_a_fact_of_its_group",
    "test_a_step_comes_after_hits_of_a_rule",
    "test_a_step_that_fails_is_reported_and_others_run",
    "test_a_step_without_a_moment_follows_the_one_before",
    "test_a_wall_time_is_a_moment_and_has_to_come",
    "test_brokers_links_and_disks_fail_in_one_jump",
    "test_steps_come_at_their_moments_of_broker_time",
    "test_steps_run_while_time_runs_by_itself",
    "test_what_is_wrong_is_one_sentence",
    "test_what_is_wrong_with_a_file_has_its_name",
    "three",
    "three_process",
]


async def test_coroutines_have_scripts_of_another_process(frozen: Kafka, process: BrokerProcess) -> None:
    there = RemoteKafkaAsync(process.control)
    script = await there.script([{"at": timedelta(seconds=1), "do": {"fault": LATE}}])

    await there.clock.advance(1)
    await script.wait_async()

    assert rules(frozen) == ["late"]


def test_script_that_a_reset_has_ended_says_what_it_said_last(frozen: Kafka) -> None:
    script = frozen.script([{"do": {"fault": LATE}}, {"at": "1s", "do": {"remove": "late"}}])
    assert script.runs == {"step-1": 1, "step-2": 0}

    frozen.reset()

    assert (script.runs, script.is_done) == ({"step-1": 1, "step-2": 0}, False)


def test_scripts_are_data_alone() -> None:
    refusing = {"id": "no", "match": {"api": "Produce", "after": "late"}, "do": Error("NOT_LEADER_OR_FOLLOWER")}
    (body,) = script_body([{"at": 1.5, "do": {"fault": refusing}}])
    assert body["at"] == 1.5
    assert body["do"]["fault"]["do"] == {"error": "NOT_LEADER_OR_FOLLOWER"}
    assert body["do"]["fault"]["match"]["after"] == "late"
    (body,) = script_body([{"do": {"fault": {"match": {"api": "Produce"}, "do": refusing["do"]}}}])
    assert "id" not in body["do"]["fault"]

    with pytest.raises(ScriptError, match=r"step 'step-1': do\.fault: when: a function is Python only"):
        script_body([{"do": {"fault": {"match": {"when": bool}, "do": {"delay": 1}}}}])
