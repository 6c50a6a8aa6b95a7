"""What the judge wants of a coordinator that has loaded its partition (I-17)."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.durable_state import DurableState
from ottla.coordinator.runtime.partition import Phase
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster import inspector
from tests.simulation.cluster.inspector import BrokerInspector, ClusterInspector
from tests.simulation.cluster.judge import ClusterJudge
from tests.simulation.cluster.replicas import TrackedLog
from tests.simulation.trace import Trace
from tests.storage.support import TOPIC_ID, append, batch, new_log


@pytest.mark.parametrize(("phase", "violated"), [(Phase.ACTIVE, ["I-17"]), (Phase.FAILED, []), (Phase.LOADING, [])])
def test_only_what_was_loaded_is_compared(monkeypatch: pytest.MonkeyPatch, phase: Phase, violated: list[str]) -> None:
    """A load that failed leaves nothing that is served; it is compared when the next one has succeeded."""
    judge = ClusterJudge(Trace(lambda: 0))
    truth: Any = SimpleNamespace(when_changed=[])
    replica = SimpleNamespace(log=new_log(FakeDisk()), high_watermark=0, leader_epoch_start=0)
    broker = SimpleNamespace(replicas=SimpleNamespace(partition=lambda topic, index: replica))
    cluster = ClusterInspector(judge, truth, compacts=False, transacts=False)
    looking = BrokerInspector(cluster, 1, broker, lambda: False)
    coordinator = SimpleNamespace(phase=phase, shard=SimpleNamespace(durable=DurableState()))
    hosted = SimpleNamespace(index=0, is_loading=phase is Phase.LOADING, coordinator=coordinator)
    monkeypatch.setattr(inspector, "replayed", lambda *_: {"group g": "made"})

    looking._look_at_loaded([hosted])
    assert [each.partition(":")[0] for each in judge.violations] == violated

    coordinator.phase, hosted.is_loading = Phase.ACTIVE, False
    looking._look_at_loaded([hosted])
    assert [each.partition(":")[0] for each in judge.violations] == ["I-17"]


def test_what_was_committed_in_the_step_of_a_death_counts() -> None:
    """An answer may have left in it, and no look has seen the step."""
    judge, log = ClusterJudge(Trace(lambda: 0)), new_log(FakeDisk())
    truth: Any = SimpleNamespace(when_changed=[], image=SimpleNamespace(topic=lambda name: None))
    partition = SimpleNamespace(
        topic="t", topic_id=TOPIC_ID, index=0, log=log, is_leader=True, leader_epoch=0, high_watermark=0
    )
    cluster = ClusterInspector(judge, truth, compacts=False, transacts=False)
    looking = BrokerInspector(cluster, 1, SimpleNamespace(replicas=[partition]), lambda: False)
    looking._partitions, key = {"t": {0: partition}}, (TOPIC_ID, 0)
    append(log, batch("a", "b"))
    committed = cluster.committed_of(key, "t")
    tracked = looking._logs[key] = TrackedLog(judge, committed, log, "broker 1", lambda: False)
    tracked.look()

    partition.high_watermark = 2
    looking.note_last_step()

    assert (committed.end_offset, judge.violations) == (2, [])
