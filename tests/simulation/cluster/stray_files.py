"""Log files that no segment of their log has: the next start would take them for segments."""

from typing import TYPE_CHECKING, Any

from ottla.storage.segment import LOG_SUFFIX
from tests.simulation.judge import Judge

if TYPE_CHECKING:
    from tests.simulation.cluster.node import Node


def judge_log_files(judge: Judge, node: "Node") -> None:
    """Of logs that have not failed. Between two steps of the broker there is none."""
    with node.disk.nothing_fails():
        for replica in node.broker.replicas:
            for name in _strays_of(node, replica.log):
                judge.violated("files", f"{node.host}: no segment of {replica} has {name}")


def _strays_of(node: "Node", log: Any) -> list[str]:
    if log.failure is not None or not node.disk.is_directory(log.directory):
        return []
    known = {segment.path(LOG_SUFFIX).name for segment in log.segments}
    names = node.disk.list_directory(log.directory)
    return [name for name in names if name.endswith(LOG_SUFFIX) and name not in known]
