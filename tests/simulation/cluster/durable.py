"""What logs call durable is on the disk: a loss of power at this moment would leave the bytes of all records below
`flushed_offset`, and the names of all segments where those are durable; but for a log that has failed. Where a disk
rots, nothing says any more where the batches of a segment end."""

from typing import TYPE_CHECKING, Any

from ottla.storage.segment import LOG_SUFFIX
from tests.simulation.judge import Judge

if TYPE_CHECKING:
    from tests.simulation.cluster.node import Node

STEPS_BETWEEN = 64


def judge_durable(judge: Judge, node: "Node") -> None:
    judge.counts["durable logs checked"] += 1
    with node.disk.nothing_fails():
        for replica in node.broker.replicas:
            log = replica.log
            has_flushed = log.log_start_offset < log.flushed_offset
            if log.failure is None and has_flushed and not node.has_rotten_disk:
                _judge_records(judge, node, log)
            if log.failure is None and log._local.has_durable_names:
                _judge_names(judge, node, log)


def _judge_names(judge: Judge, node: "Node", log: Any) -> None:
    for segment in log.segments:
        path = segment.path(LOG_SUFFIX)
        if not node.disk.has_durable_name(path):
            judge.violated("durable", f"{node.host} calls the names of its log durable, and that of {path} is not")


def _judge_records(judge: Judge, node: "Node", log: Any) -> None:
    n = log.segments.index_of(log.flushed_offset - 1)
    segment = log.segments[n]
    needed = segment.size if log.flushed_offset >= log.segments.end_of(n, log.log_end_offset) else _end(segment, log)
    missing = node.disk.first_unsynced(segment.path(LOG_SUFFIX), needed)
    if missing is not None:
        durable = f"{log.topic}-{log.partition} durable below {log.flushed_offset}"
        judge.violated(
            "durable", f"{node.host} calls {durable}, and not beyond byte {missing} of {needed} is it synced"
        )


def _end(segment: Any, log: Any) -> int:
    """Where the batches below the offset end in the segment. The recovery point of a follower that begins its log again
    may lie within a batch: that of the leader's log start, of which a part is deleted."""
    batches = segment.batches_from(0)
    return next((each.position for each in batches if each.header.next_offset > log.flushed_offset), segment.size)
