"""A scrape goes over what there may be thousands of in slices, and what changes between two of them does it no harm
(docs/operators.md §4.8)."""

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.admin.metrics.page import ScrapeTurns
from ottla.broker.admin.metrics.process_source import ProcessSource
from ottla.broker.admin.metrics.request_source import SecuritySource
from ottla.security.acl import AclOperation, ResourceType

DESCRIPTORS = 300
# Linux since 6.2.
HAS_NUMBER = Path("/proc/self/fd").stat().st_size > 0


@pytest.fixture
async def process() -> Any:
    source = ProcessSource(ScrapeTurns())
    yield source
    source.close()


def open_descriptors(source: ProcessSource) -> int:
    ((_, count),) = source.families["process_open_fds"]()  # type: ignore[misc]
    assert isinstance(count, int)
    return count


@pytest.mark.skipif(not HAS_NUMBER, reason="this kernel does not say how many there are")
async def test_descriptors_are_not_listed_where_not_needed(
    process: ProcessSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand connections took a hundred milliseconds of the loop."""
    monkeypatch.setattr(os, "scandir", lambda _: pytest.fail("they are listed"))
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("they are listed"))
    list(process.prepare())
    before = open_descriptors(process)
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(DESCRIPTORS)]
    list(process.prepare())
    found = open_descriptors(process)
    for each in opened:
        os.close(each)

    assert found == before + DESCRIPTORS


async def test_descriptors_are_counted_one_by_one_elsewhere(
    process: ProcessSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(DESCRIPTORS)]
    monkeypatch.setattr(Path, "stat", lambda _: SimpleNamespace(st_size=0))
    items = list(process.prepare())
    monkeypatch.undo()
    for each in opened:
        os.close(each)

    assert len(items) >= DESCRIPTORS
    assert open_descriptors(process) == len(items)


def test_what_is_denied_for_the_first_time_ends_no_scrape() -> None:
    refusals = Counter({(AclOperation.READ, ResourceType.TOPIC): 1, (AclOperation.WRITE, ResourceType.TOPIC): 1})
    sasl = SimpleNamespace(ended=Counter({("login", "PLAIN", "success"): 1, ("login", "PLAIN", "failure"): 1}))
    tls = SimpleNamespace(name="L", ended=Counter({"success": 1, "other": 1}))
    server: Any = SimpleNamespace(sasl={"L": sasl}, tls=SimpleNamespace(all=lambda: [tls]))
    source = SecuritySource(server, refusals)
    begun = {name: iter(source.families[name]()) for name in source.families if "reauth" not in name}
    first = [next(each) for each in begun.values()]
    refusals[AclOperation.ALTER, ResourceType.CLUSTER] += 1
    sasl.ended["login", "SCRAM-SHA-256", "failure"] += 1
    tls.ended["failure"] += 1

    assert len(first) == 3
    assert [len(list(each)) for each in begun.values()] == [1, 1, 1]
