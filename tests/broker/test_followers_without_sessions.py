"""Followers for which a leader has no fetch session left, in virtual time."""

import asyncio
from typing import Any

import pytest

from ottla.broker.replicas.fetcher_tasks import FetcherTask
from tests.broker.virtual_cluster import Cluster


def test_fetch_without_a_session_waits_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, sent = Cluster(), []
    send = FetcherTask._send

    async def counted(task: Any, pending: Any) -> None:
        sent.append(pending)
        await send(task, pending)

    async def story() -> None:
        nodes = await cluster.started(1, 2, max_incremental_fetch_session_cache_slots=0)
        await cluster.until(lambda: all(len(node.broker.image.active_brokers) == 2 for node in nodes))
        await cluster.create(nodes[0], "t", 1, 2)
        await asyncio.sleep(2)
        sent.clear()
        await asyncio.sleep(5)
        await cluster.stop_all(*nodes)

    monkeypatch.setattr(FetcherTask, "_send", counted)
    cluster.run(story())
    cluster.loop.close()

    assert 0 < len(sent) < 50
