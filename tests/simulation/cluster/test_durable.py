"""What logs call durable, and the files that they have, held against the disk."""

from types import SimpleNamespace

import pytest

from tests.simulation.cluster.durable import judge_durable
from tests.simulation.cluster.stray_files import judge_log_files
from tests.simulation.disk import SimulatedDisk
from tests.simulation.judge import Judge
from tests.simulation.trace import Trace
from tests.storage.support import ROOT, append, batch, new_log


@pytest.fixture
def judge():
    return Judge(Trace(lambda: 0))


@pytest.fixture
def node():
    disk = SimulatedDisk(Trace(lambda: 0))
    log = new_log(disk)
    append(log, batch("a"), batch("b"))
    log.roll()
    append(log, batch("c"))
    log.flush()
    return SimpleNamespace(
        host="broker-1", disk=disk, has_rotten_disk=False, broker=SimpleNamespace(replicas=[SimpleNamespace(log=log)])
    )


def log_of(node):
    return node.broker.replicas[0].log


def test_a_log_that_is_flushed_is_durable(judge, node):
    append(log_of(node), batch("not synced"))
    judge_durable(judge, node)
    assert judge.violations == []


def test_records_that_are_not_synced_are_not_durable(judge, node):
    log = log_of(node)
    append(log, batch("not synced"))
    log.durability.flushed_offset = log.log_end_offset
    judge_durable(judge, node)
    assert "durable below 4" in judge.violations[0]


def test_a_segment_whose_name_is_not_synced_is_not_durable(judge, node):
    log = log_of(node)
    log.roll()
    append(log, batch("d"))
    log._local.durable_name_changes = log._local.name_changes
    judge_durable(judge, node)
    assert "calls the names of its log durable" in judge.violations[0]


def test_a_log_file_that_no_segment_has_is_found(judge, node):
    judge_log_files(judge, node)
    assert judge.violations == []

    node.disk.open(ROOT / "t-0" / f"{77:020d}.log")
    judge_log_files(judge, node)
    assert "00077.log" in judge.violations[0]
