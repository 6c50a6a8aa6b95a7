"""Followers for which a leader has no fetch session left, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.replicas.fetcher_tasks import FetcherTask
from tests.broker.virtual_cluster import Cluster, Node
from tests.storage.support import batch


class Answer:
    error_code = 0
    error_message = None
    base_offset = 0


def replica(node: Node) -> Any:
    return node.broker.replicas.partition("t", 0)


@pytest.mark.parametrize("has_deleted", [False, True], ids=["equal log starts", "more deleted than the leader knows"])
def test_fetch_without_a_session_waits_for_records(monkeypatch: pytest.MonkeyPatch, has_deleted: bool) -> None:
    """A leader that was restarted may have forgotten a log start offset that its follower remembers."""
    cluster, sent = Cluster(), []
    send = FetcherTask._send

    async def counted(task: Any, pending: Any) -> None:
        sent.append(pending)
        await send(task, pending)

    async def story() -> None:
        nodes = await cluster.started(1, 2, max_incremental_fetch_session_cache_slots=0)
        await cluster.until(lambda: all(len(node.broker.image.active_brokers) == 2 for node in nodes))
        await cluster.create(nodes[0], "t", 1, 2)
        if has_deleted:
            leader_id = nodes[0].partition("t", 0).leader
            leader, follower = sorted(nodes, key=lambda node: node.node_id != leader_id)

            def append_two(done: Callable[[Any], None]) -> None:
                leader.broker.replicas.append(
                    replica(leader), batch("a", "b", timestamp=cluster.clock.wall_ms()), -1, Answer()
                )
                leader.broker.replicas.flush_and_notify()
                done(None)

            await cluster.call(leader, append_two)
            await cluster.until(lambda: replica(follower).high_watermark == 2)
            replica(follower).log.delete_records_before(1)
        await asyncio.sleep(2)
        sent.clear()
        await asyncio.sleep(5)
        await cluster.stop_all(*nodes)

    monkeypatch.setattr(FetcherTask, "_send", counted)
    cluster.run(story())
    cluster.loop.close()

    assert 0 < len(sent) < 50
