"""The shell of the coordinator: loading, order of effects, timers, expiry, stopping."""

import asyncio
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators import coordinator_topic, loading
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.logging import LazyLog
from ottla.coordinator.facts import GenerationCompleted, GroupLoaded, SessionExpired
from ottla.coordinator.records import build_offset_commit_key
from ottla.coordinator.runtime.hashing import _absolute_hash_of_short, partition_for
from ottla.coordinator.runtime.partition import CoordinatorPartition
from ottla.protocol.errors import CorruptMessage, ErrorCode
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.segment_reader import WouldBlock
from tests.broker.asking import Asking, messages, running
from tests.broker.test_group_handlers import (
    beat,
    commit_request,
    committed,
    describe,
    fetched,
    found,
    join_request,
    listing,
    stable,
    sync,
)
from tests.broker.test_topic_admin import creatable, created

leave = messages("leave_group")
# §11.8: version 3, offset 7, no leader epoch, no metadata, commit time 1000.
OFFSET_7 = bytes.fromhex("0003 0000000000000007 ffffffff 0000 00000000000003e8")
ONE = {"offsets.topic.num.partitions": "1"}


async def state_of(broker: Asking, group: str = "g") -> tuple[int, str]:
    (described,) = (await broker.ask(describe.DescribeGroupsRequest(groups=[group]), 5)).groups
    return described.error_code, described.group_state


def offsets_in(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in response.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("crash", [False, True])
async def test_groups_and_offsets_are_there_after_a_restart(tmp_path: Path, crash: bool) -> None:
    """G27; members keep their session, generation and assignment."""
    async with running(tmp_path, crash=crash) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        member = await stable(await broker.client())
        fields = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
        assert (await broker.ask(commit_request("g", {("a", 0): 5}, **fields), 7)).topics[0].partitions[
            0
        ].error_code == 0
    async with running(tmp_path) as broker:
        await loaded(broker)
        assert await state_of(broker) == (0, "Stable")
        request = beat.HeartbeatRequest(group_id="g", member_id=member.member_id, generation_id=1)
        assert (await broker.ask(request, 3)).error_code == 0
        again = sync.SyncGroupRequest(group_id="g", member_id=member.member_id, generation_id=1)
        assert (await broker.ask(again, 3)).assignment == b"assigned"
        assert offsets_in(await fetched(broker, "g")) == {("a", 0): 5}


async def loaded(broker: Asking) -> None:
    loader = broker.broker.groups.topic._loader
    if loader is not None:
        await loader


async def test_requests_while_loading_get_load_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """§4.3.2, T-10: no request is answered "no offset" from a cache that is still being filled."""
    async with running(tmp_path, ONE) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        for offset in range(5):
            await committed(broker, "g", {("a", 0): offset})
    monkeypatch.setattr(loading, "RECORDS_PER_SLICE", 1)
    go_on = asyncio.Event()
    monkeypatch.setattr(loading.asyncio, "sleep", lambda _: go_on.wait())
    async with running(tmp_path, ONE) as broker:
        assert (await fetched(broker, "g")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await broker.ask(join_request("m"), 5)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await broker.ask(beat.HeartbeatRequest(group_id="g", member_id="m"), 3)).error_code == 0
        syncing = sync.SyncGroupRequest(group_id="g", member_id="m")
        assert (await broker.ask(syncing, 3)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        listed = await broker.ask(listing.ListGroupsRequest(), 4)
        assert (listed.error_code, listed.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        broker.broker.groups.topics_deleted(["a"])
        go_on.set()
        await loaded(broker)

        assert offsets_in(await fetched(broker, "g")) == {}, "the topic was deleted while its offsets were loading"


async def test_a_partition_larger_than_the_buffer_is_loaded_in_chunks(tmp_path: Path) -> None:
    settings = {**ONE, "offsets.load.buffer.size": "100"}
    async with running(tmp_path, settings) as broker:
        await found(broker)
        await created(broker, creatable("a", 20))
        for index in range(20):
            await committed(broker, "g", {("a", index): index})
    async with running(tmp_path, settings) as broker:
        await loaded(broker)
        assert offsets_in(await fetched(broker, "g")) == {("a", index): index for index in range(20)}


async def test_records_that_are_not_in_memory_are_read_in_a_thread(tmp_path: Path) -> None:
    async with running(tmp_path, ONE) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})
        groups = broker.broker.groups
        groups.stop()
        log = broker.broker.replicas.partition("__consumer_offsets", 0).log
        read = log.read

        def blocked(*place: Any, **bounds: Any) -> Any:
            raise WouldBlock(lambda: read(*place, **bounds), log.log_end_offset)

        log.read = blocked
        groups.start()
        await loaded(broker)
        assert offsets_in(await fetched(broker, "g")) == {("a", 0): 5}


async def restarted_on_a_damaged_log(broker: Asking) -> GroupCoordinator:
    """A coordinator with one group, which is loaded again and cannot read it."""
    await found(broker)
    await created(broker, creatable("a"))
    await committed(broker, "g", {("a", 0): 5})
    groups = broker.broker.groups
    groups.stop()

    def damaged(*place: Any, **bounds: Any) -> Any:
        raise CorruptMessage("a bit has flipped")

    broker.broker.replicas.partition("__consumer_offsets", 0).log.read = damaged
    groups.start()
    return groups


async def test_a_partition_that_cannot_be_read_is_not_served_at_all(tmp_path: Path) -> None:
    """§4.4.6: half a coordinator is worse than none."""
    async with running(tmp_path, ONE) as broker:
        await restarted_on_a_damaged_log(broker)
        await loaded(broker)
        assert (await fetched(broker, "g")).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("where", ["load", "finish_loading"])
async def test_a_load_that_fails_holds_up_no_other_and_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    offsets = {f"g{number}": number for number in range(12)}
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        for group, offset in offsets.items():
            await committed(broker, group, {("a", 0): offset})
    fail_first_load(monkeypatch, where)
    async with running(tmp_path) as broker:
        await loaded(broker)
        answers = {group: await fetched(broker, group) for group in offsets}
        errors = {partition_for(group, 4): answer.error_code for group, answer in answers.items()}
        assert sorted(errors.values()) == [0, 0, 0, ErrorCode.NOT_COORDINATOR]
        (failed,) = (each for each in broker.broker.groups.topic if each.reload is not None)
        broker.broker.groups.topics_deleted(["b"])

        failed.reload.action()
        await loaded(broker)
        again = {group: offsets_in(await fetched(broker, group)) for group in offsets}
        assert again == {group: {("a", 0): offset} for group, offset in offsets.items()}


def fail_first_load(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Late enough that the groups have been made, where there is a choice."""
    owner, finished = (coordinator_topic, "load") if where == "load" else (CoordinatorPartition, "finish_loading")
    original = getattr(owner, finished)
    loads = itertools.count()

    def fail_once(*arguments: Any) -> Any:
        result = original(*arguments)
        if not next(loads):
            if where == "load":
                result.close()
            raise RuntimeError("a bug")
        return result

    monkeypatch.setattr(owner, finished, fail_once)


async def test_loads_that_keep_failing_are_retried_less_and_less_often(tmp_path: Path) -> None:
    """And a resignation ends it."""
    async with running(tmp_path, ONE) as broker:
        groups = await restarted_on_a_damaged_log(broker)
        (partition,) = groups.topic
        waits = []
        for _ in range(8):
            await loaded(broker)
            now_ms = broker.broker.runtime.clock.now_ms()
            waits.append(round((partition.reload.deadline_ms - now_ms) / 1000))
            partition.reload.cancel()
            partition.reload.action()
        await loaded(broker)
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
        groups.stop()
        assert not partition.reload.pending


async def test_transactional_offsets_count_only_after_commit_marker(tmp_path: Path) -> None:
    """§4.4.3, in a data directory that another broker has written."""

    def offset(partition: int) -> Record:
        key = build_offset_commit_key("g", "a", partition)
        return Record(timestamp=1, key=key, value=OFFSET_7)

    def marker(producer_id: int, kind: int) -> bytearray:
        record = Record(timestamp=1, key=bytes((0, 0, 0, kind)), value=bytes(6))
        return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)

    def transaction(producer_id: int, partition: int) -> bytearray:
        return build_batch(
            [offset(partition)], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )

    async with running(tmp_path, ONE) as broker:
        await found(broker)
        await created(broker, creatable("a", 3))
        log = broker.broker.replicas.partition("__consumer_offsets", 0).log
        batches = [transaction(1, 0), transaction(2, 1), transaction(3, 2), marker(1, 1), marker(2, 0)]
        broker.broker.groups.stop()
        for batch in batches:
            log.append_as_follower(memoryview(placed(batch, log)), now_wall_ms=1)
            log.write_pending(now_wall_ms=1)
    async with running(tmp_path, ONE) as broker:
        await loaded(broker)
        assert offsets_in(await fetched(broker, "g")) == {("a", 0): 7}


def placed(batch: bytearray, log: Any) -> bytearray:
    batch[:8] = log.log_end_offset.to_bytes(8, "big")
    batch[12:16] = (0).to_bytes(4, "big")
    return batch


async def test_observers_get_facts_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        facts: list[Any] = []
        broker.broker.groups.observers.append(facts.append)
        await found(broker)
        await stable(await broker.client())
        completed = [fact for fact in facts if isinstance(fact, GenerationCompleted)]

        assert [(fact.group_id, fact.generation) for fact in completed] == [("g", 1)]
    async with running(tmp_path) as broker:
        seen: list[Any] = []
        broker.broker.groups.observers.append(seen.append)
        await loaded(broker)
        assert [type(fact) for fact in seen][:1] == [GroupLoaded]


async def test_an_observer_that_raises_harms_no_group(tmp_path: Path) -> None:
    """The log names it once for each kind of fact, and those after it are still notified."""
    stream = io.StringIO()
    async with running(tmp_path, log=LazyLog("json", "error", stream)) as broker:
        facts: list[Any] = []
        for observer in (Unfit(), facts.append):
            broker.broker.groups.observers.append(observer)
        await found(broker)
        for group in ("g", "h"):
            await stable(await broker.client(), group)
            assert await state_of(broker, group) == (0, "Stable")
        await created(broker, creatable("a"))
        await committed(broker, "simple", {("a", 0): 5})
        assert offsets_in(await fetched(broker, "simple")) == {("a", 0): 5}

    logged = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert sorted(line["notified_of"] for line in logged) == sorted({type(fact).__name__ for fact in facts})
    assert {(line["event"], line["observer"]) for line in logged} == {("an observer failed", "Unfit")}
    assert "cannot cope" in logged[0]["exception"]


class Unfit:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, fact: Any) -> None:
        raise ValueError("cannot cope")


async def test_a_silent_member_is_removed_by_its_timer(tmp_path: Path) -> None:
    """G19, on the broker's own wheel."""
    async with running(tmp_path, {"group.min.session.timeout.ms": "1"}) as broker:
        expired = asyncio.Event()
        broker.broker.groups.observers.append(lambda fact: expired.set() if isinstance(fact, SessionExpired) else None)
        await found(broker)
        await stable(await broker.client(), session_timeout_ms=300, rebalance_timeout_ms=300)
        await expired.wait()

        assert await state_of(broker) == (0, "Empty")
        assert all(not partition._timers for partition in broker.broker.groups.topic)


async def test_offsets_expire_on_the_configured_round(tmp_path: Path) -> None:
    class Clock:
        """The machine's, moved forward by what the test says."""

        ahead_ms = 0

        def now_ms(self) -> int:
            return int(asyncio.get_running_loop().time() * 1000)

        def now_ns(self) -> int:
            return self.now_ms() * 1_000_000

        def wall_ms(self) -> int:
            return 1_700_000_000_000 + self.now_ms() + self.ahead_ms

    clock = Clock()
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "20"}
    async with running(tmp_path, settings, clock=clock) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})
        assert offsets_in(await fetched(broker, "g")) == {("a", 0): 5}
        clock.ahead_ms = 61_000
        while offsets_in(await fetched(broker, "g")):
            pass
        assert await state_of(broker) == (0, "Dead")


async def test_names_are_forgotten_now_and_then(tmp_path: Path) -> None:
    """Strewn over the memory, a few thousand of them keep fifty megabytes from being given back."""
    remembered = _absolute_hash_of_short.cache_info
    async with running(tmp_path, {"offsets.retention.check.interval.ms": "20"}) as broker:
        await found(broker)
        partition_for("a name that is asked for once", 50)
        assert remembered().currsize > 0
        async with asyncio.timeout(30):
            while remembered().currsize > 0:
                await broker.ask(listing.ListGroupsRequest(), 4)


async def test_stopping_answers_those_who_wait(tmp_path: Path) -> None:
    async with running(tmp_path, {"group.initial.rebalance.delay.ms": "60000"}) as broker:
        await found(broker)
        client = await broker.client()
        request = join_request()
        client.send(request, 3)
        while (await state_of(broker))[1] == "Dead":
            pass
        broker.broker.groups.stop()

        assert (await client.answer()).error_code == ErrorCode.NOT_COORDINATOR
        assert (await broker.ask(join_request(), 3)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not broker.broker.groups.topic.pending


async def test_groups_live_where_the_hash_of_their_name_says(tmp_path: Path) -> None:
    """G03."""
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "polygenelubricants", {("a", 0): 1})
        log = broker.broker.replicas.partition("__consumer_offsets", partition_for("polygenelubricants", 4)).log

        assert log.log_end_offset > 0
