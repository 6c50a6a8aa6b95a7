"""The cleaner goes on, whatever one log or one call does to it (§16.6.2)."""

import asyncio
import errno
from typing import Any

import pytest

from ottla.storage import compaction
from ottla.storage.log import Log
from tests.broker.virtual_cluster import Cluster, Node
from tests.storage.support import keyed

BACKOFF_MS = 500
RESTS = {"log_cleaner_backoff_ms": BACKOFF_MS}


async def produce(cluster: Cluster, node: Node, topic: str, count: int) -> Log:
    """Each record has the key of the others; the log, of several segments."""
    replicas = node.broker.replicas

    async def append() -> None:
        for n in range(count):
            records = keyed(("k", f"{n:050d}"), timestamp=cluster.clock.wall_ms())
            replicas.append_records(topic, 0, records, lambda info, why: None)
            replicas.flush_and_notify()

    await cluster.spawn(node, append())
    return replicas.partition(topic, 0).log


async def create(cluster: Cluster, node: Node, name: str, **configs: str) -> None:
    await cluster.create(node, name, 1, 1, cleanup_policy="compact", segment_bytes="1000", **configs)


def failures(node: Node) -> list[dict[str, Any]]:
    return [fields for event, fields in node.log.events if event == "compaction failed"]


@pytest.mark.parametrize(("operation", "number"), [("open", errno.EMFILE), ("pread", errno.EIO)])
def test_compaction_goes_on_when_the_disk_opens_files_again(operation: str, number: int) -> None:
    """When a segment began is read from it where it was not asked for since the start."""
    cluster = Cluster()

    async def story() -> None:
        (node,) = await cluster.started(1, log_cleaner_enable="false", **RESTS)
        await create(cluster, node, "t", max_compaction_lag_ms="60000", min_cleanable_dirty_ratio="0.99")
        await produce(cluster, node, "t", 60)
        await cluster.stop(node)
        again = cluster.boot(1, node.disk, host="broker-1b", **RESTS)
        await again.started
        log = again.broker.replicas.partition("t", 0).log
        # An earlier pass had come so far.
        log.swaps.cleaned_offset = log.segments[2].base_offset
        log.release_idle()
        again.disk.fail(operation, OSError(number, "the disk refuses"))

        await asyncio.sleep(120)

        assert len(failures(again)) == 1
        assert "why" in failures(again)[0]
        assert log.cleaned_offset == log.segments.active.base_offset
        await cluster.stop(again)

    cluster.run(story())


@pytest.mark.parametrize("step", ["plan_compaction", "compact", "begin_swap"])
def test_error_of_one_log_does_not_end_compaction(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    cluster = Cluster()
    works = getattr(compaction, step)

    def broken(first: Any, *arguments: Any, **named: Any) -> Any:
        if first.directory.name == "broken-0":
            raise RuntimeError("a bug")
        return works(first, *arguments, **named)

    monkeypatch.setattr(compaction, step, broken)

    async def story() -> None:
        (node,) = await cluster.started(1, **RESTS)
        for name in ("a", "broken", "z"):
            await create(cluster, node, name, min_cleanable_dirty_ratio="0.01")
        logs = [await produce(cluster, node, name, 60) for name in ("a", "broken", "z")]

        await asyncio.sleep(10)

        assert [log.cleaned_offset == log.segments.active.base_offset for log in logs] == [True, False, True]
        assert isinstance(failures(node)[0]["exc_info"], RuntimeError)
        monkeypatch.undo()
        await asyncio.sleep(10)
        assert logs[1].cleaned_offset == logs[1].segments.active.base_offset
        await cluster.stop(node)

    cluster.run(story())
