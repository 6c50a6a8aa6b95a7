"""The tasks that copy partitions from their leaders, one for each fetcher of `FetcherManager`.

A task sends what its fetcher requests, hands it the response, performs on the logs what the followers decide, and
passes on what has happened; when there is nothing to request it sleeps until the fetcher wants to look again or is
woken. What a log has lost to a truncation is made durable before the next request: else the old end could come back
with the power, under the epochs of the new one, or be taken for it by a recovery point that spoke of the old one.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal, Protocol

from ottla.broker.config.server_cluster import ReplicationOptions
from ottla.broker.logging import cause_of
from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.replicas.follower_log import Report, perform
from ottla.broker.runtime import Runtime, complete
from ottla.broker.server.network import Network, SocketOptions
from ottla.broker.server.peer_connection import Peer, PeerError
from ottla.protocol.address import Address
from ottla.protocol.errors import ErrorCode, KafkaStorageError
from ottla.replication.fetcher import Fetcher
from ottla.replication.fetcher_manager import FetcherManager
from ottla.replication.fetcher_requests import SYNC_WAIT_MS, FetcherConfig, FetcherRequest, LeaderEndpoint
from ottla.replication.follower_effects import BackedOff, Effect, Fact, Failed, Fenced, Fetched, Restarted, Truncated
from ottla.replication.partition import Partition
from ottla.replication.replication_quota import ReplicationQuota
from ottla.security.client import LoginCredentials
from ottla.storage.durability import FlushWork, run_all
from ottla.storage.log_producers import ProducersRestore

# Between two attempts to write what the disk would not take.
RETRY_MS = 2000
# What happens whenever a leader moves; its followers may learn of it first.
_PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


class Failures(Protocol):
    def write_failed(self, partition: Partition) -> None: ...


class CopiedReplicas(Protocol):
    """What is done with the partitions that are copied."""

    @property
    def failed(self) -> Failures: ...

    def find(self, topic: str, index: int) -> Partition | None: ...

    def followed(self, partition: Partition, *, high_watermark_rose: bool) -> None: ...

    def follow_again(self, partition: Partition) -> None: ...


class FetcherTasks:
    """Add and remove all partitions of an update, then `apply_changes`."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        replicas: CopiedReplicas,
        network: Network,
        login: LoginCredentials | None,
        recovery_points_fell: Callable[[Callable[[], None] | None], None],
        quota: ReplicationQuota,
    ) -> None:
        config = runtime.config
        self._runtime = runtime
        self._metadata = metadata
        self._replicas = replicas
        self._recovery_points_fell = recovery_points_fell
        options = SocketOptions(
            receive_buffer_bytes=config.size_if_set(ReplicationOptions.replica_socket_receive_buffer_bytes)
        )
        self._new_peer: Callable[[Address, str], Peer] = partial(Peer, runtime, network, options=options, login=login)
        self._manager = FetcherManager(
            FetcherConfig(
                replica_id=runtime.node_id,
                max_wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                partition_max_bytes=config.replica_fetch_max_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                back_off_ms=config.replica_fetch_backoff_ms,
            ),
            fetchers_per_leader=config.num_replica_fetchers,
            quota=quota,
        )
        self._tasks: dict[Fetcher, FetcherTask] = {}
        # Before they had a task.
        self._truncated: list[Partition] = []
        self._is_over = False

    def add_partition(self, partition: Partition, host: str, port: int) -> None:
        """Copy the partition from the leader of its term, which is there."""
        effects = self._manager.add_partition(partition, LeaderEndpoint(host, port))
        if effects:
            self._handle(effects)

    def remove_partition(self, topic: str, index: int) -> None:
        self._manager.remove_partition(topic, index)

    def synced(self, partition: Partition) -> None:
        """The partition's log was synced, or could not be."""
        self._handle(self._manager.synced(partition.topic, partition.index))
        self.apply_changes()

    def move_leader(self, leader_id: int, host: str, port: int) -> None:
        self._manager.move_leader(leader_id, LeaderEndpoint(host, port))

    def apply_changes(self) -> None:
        """Starts, ends and wakes tasks as the changes since the last call want it."""
        if self._is_over:
            return
        changes = self._manager.take_changes()
        for fetcher in changes.ended:
            self._tasks.pop(fetcher).end()
        for fetcher in changes.started:
            self._tasks[fetcher] = FetcherTask(
                self,
                self._runtime,
                self._metadata,
                self._replicas,
                fetcher,
                self._new_peer,
                self._recovery_points_fell,
            )
        truncated, self._truncated = self._truncated, []
        for fetcher, task in self._tasks.items():
            task.truncated += [each for each in truncated if (each.topic_id, each.index) in fetcher.followers]
        for fetcher in changes.woken:
            self._tasks[fetcher].wake()

    def end(self) -> None:
        """The broker stops, or is about to die: nothing is fetched any more."""
        self._is_over = True
        for task in self._tasks.values():
            task.end()
        self._tasks.clear()

    # What the followers decide.

    def _handle(self, effects: list[Effect]) -> None:
        self._truncated += self.handle_effects(effects, self._manager.performed)

    def handle_effects(self, effects: list[Effect], report: Report) -> list[Partition]:
        """Performs what is to be done to the logs; returns the partitions that have lost records by that."""
        now_ms, wall_ms = self._runtime.clock.now_ms(), self._runtime.broker_clock.wall_ms()
        truncated: list[Partition] = []
        for fact in perform(effects, report, now_ms=now_ms, wall_ms=wall_ms):
            if isinstance(fact, Truncated | Restarted):
                truncated.append(fact.partition)
            # Each partition is on its own.
            try:
                if isinstance(fact, Fetched):
                    self._replicas.followed(fact.partition, high_watermark_rose=fact.high_watermark_rose)
                else:
                    self._note(fact)
            except Exception as error:
                self._runtime.report(error)
        if truncated:
            # At once, for a replica may begin to lead before it would fetch again.
            self._recovery_points_fell(None)
        return truncated

    def _note(self, fact: Fact) -> None:
        if not isinstance(fact, Failed):
            self._log(fact)
        elif self._is_here(fact.partition):
            # Otherwise its log was deleted while a response was on its way to it.
            self._try_later(fact.partition)
            self._log(fact)
            self._replicas.failed.write_failed(fact.partition)

    def _is_here(self, partition: Partition) -> bool:
        return self._replicas.find(partition.topic, partition.index) is partition

    def _try_later(self, partition: Partition) -> None:
        """The disk was full, or would not open a file; it may recover."""
        leader_epoch = partition.leader_epoch

        def try_again() -> None:
            has_ended = partition.log.failure is not None or partition.leader_epoch != leader_epoch
            if not has_ended and self._runtime.is_serving:
                self._replicas.follow_again(partition)

        self._runtime.wheel.schedule(self._runtime.clock.now_ms() + RETRY_MS, try_again)

    def _log(self, fact: Fact) -> None:
        log, partition = self._runtime.log.replication, fact.partition
        where = {"topic": partition.topic, "partition": partition.index, "leader_epoch": partition.leader_epoch}
        match fact:
            case Truncated():
                write = getattr(log, level_of_truncation(fact))
                write(
                    "log truncated, the leader does not have the records",
                    **where,
                    log_end_offset=partition.log.log_end_offset,
                    before=fact.end_offset_before,
                    below_high_watermark=fact.lost_committed,
                )
            case Restarted():
                log.warning(
                    "log restarted, the leader has deleted all that was here",
                    **where,
                    log_start_offset=partition.log.log_start_offset,
                    before=fact.end_offset_before,
                )
            case BackedOff():
                write = log.debug if fact.error in _PASSING else log.warning
                write("fetch backing off", **where, error=fact.error.name, why=fact.why)
            case Fenced():
                log.info("fetch fenced, the leader is in a later epoch", **where)
            case Failed():
                log.error("replica failed, fetching stopped", **where, **cause_of(fact.error))
            case Fetched():
                pass


def level_of_truncation(truncated: Truncated) -> Literal["info", "warning", "error"]:
    """How loudly to say it. A copy of a compacted log does not know the epochs of which compaction had left nothing. As
    leader it does not know who wrote what was there, and followers cut off records that later ones have replaced."""
    if not truncated.lost_committed:
        return "info"
    return "warning" if truncated.partition.log.config.is_compacted else "error"


class FetcherTask:
    """One fetcher at work."""

    def __init__(
        self,
        tasks: FetcherTasks,
        runtime: Runtime,
        metadata: Metadata,
        replicas: CopiedReplicas,
        fetcher: Fetcher,
        new_peer: Callable[[Address, str], Peer],
        recovery_points_fell: Callable[[Callable[[], None] | None], None],
    ) -> None:
        # Partitions whose logs have lost records that must not come back.
        self.truncated: list[Partition] = []
        self._tasks = tasks
        self._runtime = runtime
        self._metadata = metadata
        self._replicas = replicas
        self._fetcher = fetcher
        self._new_peer = new_peer
        self._recovery_points_fell = recovery_points_fell
        self._peer: Peer | None = None
        self._is_woken = asyncio.Event()
        self._is_failing = False
        leader_id, fetcher_id = fetcher.key
        self._client_id = f"broker-{runtime.node_id}-fetcher-{fetcher_id}"
        self._task = runtime.start_task(self._run(), name=f"fetcher {fetcher_id} of broker {leader_id}")

    def wake(self) -> None:
        self._is_woken.set()

    def end(self) -> None:
        self._task.cancel()
        self._close()

    async def _run(self) -> None:
        while True:
            self._is_woken.clear()
            pending: FetcherRequest | None = None
            try:
                if self.truncated:
                    await self._make_durable()
                if self._fetcher.is_syncing:
                    await self._syncs_done()
                now_ms = self._runtime.clock.now_ms()
                pending = self._fetcher.next_request(now_ms, self._metadata.broker_epoch)
                if pending is None:
                    await self._sleep(self._fetcher.wake_ms(now_ms))
                    continue
                await self._send(pending)
            except Exception as error:
                # Whatever it is: otherwise the partitions of this leader would never be fetched again.
                await self._recover(pending, error)
            # A task is an event of its own.
            self._runtime.end_event()

    async def _recover(self, pending: FetcherRequest | None, error: Exception) -> None:
        if pending is not None and isinstance(error, PeerError):
            self._request_failed(pending, str(error))
            return
        self._runtime.log.replication.error(
            "unhandled error in a fetcher", leader=self._fetcher.key.leader_id, exc_info=error
        )
        if pending is not None:
            self._request_failed(pending, "the response could not be read")
        else:
            self._runtime.end_event()
            await self._sleep(self._runtime.clock.now_ms() + RETRY_MS)

    async def _send(self, pending: FetcherRequest) -> None:
        if self._peer is None:
            peer = self._new_peer(Address(*self._fetcher.endpoint), self._client_id)
            await peer.connect()
            self._peer = peer
        response = await self._peer.ask(pending.request)
        effects = self._fetcher.handle_response(pending, response, now_ms=self._runtime.clock.now_ms())
        self._is_failing = False
        self.truncated += self._tasks.handle_effects(effects, self._fetcher.performed)

    def _request_failed(self, pending: FetcherRequest, why: str) -> None:
        self._close()
        self._fetcher.request_failed(pending, self._runtime.clock.now_ms())
        if not self._is_failing:
            self._is_failing = True
            host, port = self._fetcher.endpoint
            leader_id = self._fetcher.key.leader_id
            self._runtime.log.replication.warning(
                "fetch from leader failed", leader=leader_id, address=f"{host}:{port}", why=why
            )

    def _close(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    async def _sleep(self, until_ms: int | None) -> None:
        if until_ms is None:
            await self._is_woken.wait()
            return
        timer = self._runtime.wheel.schedule(until_ms, self.wake)
        try:
            await self._is_woken.wait()
        finally:
            timer.cancel()

    async def _syncs_done(self) -> None:
        """Returns when no partition waits for the disk, or when the others should not wait any longer."""
        deadline_ms = self._runtime.clock.now_ms() + SYNC_WAIT_MS
        while self._fetcher.is_syncing and self._runtime.clock.now_ms() < deadline_ms:
            self._is_woken.clear()
            await self._sleep(deadline_ms)

    async def _make_durable(self) -> None:
        """Syncs the logs that were truncated, in a thread, and restores what they have forgotten of their producers.

        Until that has come to an end, with success or with the failure of a log, nothing is fetched."""
        while self.truncated:
            truncated, self.truncated = self.truncated, []
            await self._sync_truncated(truncated)
            if self.truncated:
                self._is_woken.clear()
                await self._sleep(self._runtime.clock.now_ms() + RETRY_MS)

    async def _sync_truncated(self, truncated: list[Partition]) -> None:
        works: list[tuple[Partition, FlushWork]] = []
        restores: list[tuple[Partition, ProducersRestore]] = []
        for partition in truncated:
            try:
                works.append((partition, partition.log.begin_flush()))
            except Exception as error:
                self._sync_failed(partition, error)
            # A log that cannot be read here reads by itself when its producers are asked for.
            with suppress(KafkaStorageError):
                restore = partition.log.begin_restore()
                if restore is not None:
                    restores.append((partition, restore))
        finished = asyncio.get_running_loop().create_future()
        work = partial(run_all, [*(flush for _, flush in works), *(restore for _, restore in restores)])
        self._runtime.offload(work, lambda: self._synced(works, restores, finished))
        await finished

    def _synced(
        self,
        works: list[tuple[Partition, FlushWork]],
        restores: list[tuple[Partition, ProducersRestore]],
        finished: "asyncio.Future[None]",
    ) -> None:
        for partition, work in works:
            try:
                partition.log.finish_flush(work)
            except Exception as error:
                self._sync_failed(partition, error)
        for partition, restore in restores:
            partition.log.finish_restore(restore)
        self._recovery_points_fell(partial(complete, finished, None))

    def _sync_failed(self, partition: Partition, error: Exception) -> None:
        # A log that was deleted since need not be synced.
        if self._replicas.find(partition.topic, partition.index) is partition:
            self._runtime.log.replication.error(
                "sync failed", topic=partition.topic, partition=partition.index, **cause_of(error)
            )
            if partition.log.failure is None:
                # For want of descriptors: nothing is lost by trying again.
                self.truncated.append(partition)
