"""The tasks that copy partitions from their leaders, one for each fetcher of `FetcherManager`.

A task asks what its fetcher wants asked, hands it the answer, and tells the replica manager what came of it; when there
is nothing to ask it sleeps until the fetcher wants to look again or is woken. What a log has lost to a truncation is
made durable before the next request: else the old end could come back with the power, under the epochs of the new one,
or be taken for it by a recovery point that spoke of the old one.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Protocol

from ottla.broker.config.server_replication import ReplicationOptions
from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.runtime import Runtime
from ottla.broker.server.network import Network, SocketOptions
from ottla.broker.server.peer_connection import Peer, PeerError
from ottla.protocol.address import Address
from ottla.protocol.errors import ErrorCode, KafkaStorageError
from ottla.replication.facts import BackedOff, Fact, Failed, Fenced, Followed, Restarted, Truncated
from ottla.replication.fetcher import SYNC_WAIT_MS, Endpoint, Fetcher, FetcherConfig, Planned
from ottla.replication.fetcher_manager import FetcherManager
from ottla.replication.partition import Partition
from ottla.storage.flusher import FlushWork
from ottla.storage.producer_restore import ProducersRestore

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


class Fetching:
    """Tell of all changes, then `settle`."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        replicas: CopiedReplicas,
        network: Network,
        recovery_points_fell: Callable[[Callable[[], None] | None], None],
    ) -> None:
        config = runtime.config
        self._runtime = runtime
        self._metadata = metadata
        self._replicas = replicas
        self._network = network
        self._recovery_points_fell = recovery_points_fell
        self._options = SocketOptions(
            receive_buffer_bytes=config.size_if_set(ReplicationOptions.replica_socket_receive_buffer_bytes)
        )
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
        )
        self._tasks: dict[Fetcher, FetcherTask] = {}
        self._is_over = False

    def _new_peer(self, address: Address, client_id: str) -> Peer:
        return Peer(self._runtime, self._network, address, client_id, self._options)

    @property
    def fetchers(self) -> list[Fetcher]:
        return self._manager.fetchers

    def follow(self, partition: Partition, host: str, port: int) -> None:
        """Copy the partition from the leader of its term, which is there."""
        self._manager.follow(partition, Endpoint(host, port))

    def stop(self, topic: str, index: int) -> None:
        self._manager.stop(topic, index)

    def synced(self, partition: Partition) -> None:
        """The partition's log was synced, or could not be."""
        self._manager.synced(partition.topic, partition.index)
        self.settle()

    def move_leader(self, leader_id: int, host: str, port: int) -> None:
        self._manager.move_leader(leader_id, Endpoint(host, port))

    def settle(self) -> None:
        """Begins and ends tasks as the changes since the last call want it."""
        if self._is_over:
            return
        changes = self._manager.settle()
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
        cut = self.heard(changes.facts)
        for fetcher, task in self._tasks.items():
            task.cut += [each for each in cut if (each.topic_id, each.index) in fetcher.followers]
        for fetcher in changes.woken:
            self._tasks[fetcher].wake()

    def end(self) -> None:
        """The broker stops, or is as good as dead: nothing is fetched any more."""
        self._is_over = True
        for task in self._tasks.values():
            task.end()
        self._tasks.clear()

    # What comes of it.

    def heard(self, facts: Iterable[Fact]) -> list[Partition]:
        """The partitions whose logs have lost something."""
        cut: list[Partition] = []
        for fact in facts:
            if isinstance(fact, Followed):
                self._replicas.followed(fact.partition, high_watermark_rose=fact.high_watermark_rose)
                continue
            if isinstance(fact, Failed) and not self._is_here(fact.partition):
                # Its log was deleted while an answer was on its way to it.
                continue
            self._log(fact)
            if isinstance(fact, Truncated | Restarted):
                cut.append(fact.partition)
            elif isinstance(fact, Failed):
                self._replicas.failed.write_failed(fact.partition)
                self._try_later(fact.partition)
        if cut:
            # At once, for a replica may begin to lead before it would fetch again.
            self._recovery_points_fell(None)
        return cut

    def _is_here(self, partition: Partition) -> bool:
        return self._replicas.find(partition.topic, partition.index) is partition

    def _try_later(self, partition: Partition) -> None:
        """The disk was full, or would not open a file; it may recover."""
        leader_epoch = partition.leader_epoch

        def try_again() -> None:
            is_hopeless = partition.log.failure is not None or partition.leader_epoch != leader_epoch
            if not is_hopeless and self._runtime.is_serving:
                self._replicas.follow_again(partition)

        self._runtime.wheel.schedule(self._runtime.clock.now_ms() + RETRY_MS, try_again)

    def _log(self, fact: Fact) -> None:
        log, partition = self._runtime.log, fact.partition
        where = {"topic": partition.topic, "partition": partition.index, "leader_epoch": partition.leader_epoch}
        match fact:
            case Truncated():
                tell = log.error if fact.lost_committed else log.info
                tell(
                    "records that the leader does not have were cut off",
                    **where,
                    log_end_offset=partition.log.log_end_offset,
                    before=fact.end_offset_before,
                    below_high_watermark=fact.lost_committed,
                )
            case Restarted():
                log.warning(
                    "the leader has deleted all that was here, the log begins anew",
                    **where,
                    log_start_offset=partition.log.log_start_offset,
                    before=fact.end_offset_before,
                )
            case BackedOff():
                tell = log.debug if fact.error in _PASSING else log.warning
                tell("fetch backing off", **where, error=fact.error.name, why=fact.why)
            case Fenced():
                log.info("the leader is in a later term, fetching waits for metadata", **where)
            case Failed():
                log.error("a replica has failed and is not copied any more", **where, why=fact.why)
            case Followed():
                pass


class FetcherTask:
    """One fetcher at work."""

    def __init__(
        self,
        fetching: Fetching,
        runtime: Runtime,
        metadata: Metadata,
        replicas: CopiedReplicas,
        fetcher: Fetcher,
        new_peer: Callable[[Address, str], Peer],
        recovery_points_fell: Callable[[Callable[[], None] | None], None],
    ) -> None:
        # Partitions whose logs have lost something that must not come back.
        self.cut: list[Partition] = []
        self._fetching = fetching
        self._runtime = runtime
        self._metadata = metadata
        self._replicas = replicas
        self._fetcher = fetcher
        self._new_peer = new_peer
        self._recovery_points_fell = recovery_points_fell
        self._peer: Peer | None = None
        self._is_woken = asyncio.Event()
        self._is_cut_off = False
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
            if self.cut:
                await self._make_durable()
            await self._syncs_done()
            now_ms = self._runtime.clock.now_ms()
            planned = self._fetcher.next_request(now_ms, self._metadata.broker_epoch)
            if planned is None:
                await self._sleep(self._fetcher.wake_ms(now_ms))
                continue
            try:
                await self._ask(planned)
            except PeerError as error:
                self._not_answered(planned, str(error))
            except Exception as error:
                # The partitions of this leader would else stand still for ever.
                self._runtime.log.error("a fetcher failed", leader=self._fetcher.key.leader_id, exc_info=error)
                self._not_answered(planned, "it could not be understood")
            # A task is an event of its own.
            self._runtime.end_event()

    async def _ask(self, planned: Planned) -> None:
        if self._peer is None:
            peer = self._new_peer(Address(*self._fetcher.endpoint), self._client_id)
            await peer.connect()
            self._peer = peer
        response = await self._peer.ask(planned.request)
        clock = self._runtime.clock
        facts = self._fetcher.answered(planned, response, now_ms=clock.now_ms(), wall_ms=clock.wall_ms())
        self._is_cut_off = False
        self.cut += self._fetching.heard(facts)

    def _not_answered(self, planned: Planned, why: str) -> None:
        self._close()
        self._fetcher.failed(planned, self._runtime.clock.now_ms())
        if not self._is_cut_off:
            self._is_cut_off = True
            host, port = self._fetcher.endpoint
            leader_id = self._fetcher.key.leader_id
            self._runtime.log.warning("fetch from leader failed", leader=leader_id, address=f"{host}:{port}", why=why)

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
        """Syncs the logs that were cut, in a thread, and reads there what they have forgotten of their producers.

        Until that has come to an end, with success or with the failure of a log, nothing is fetched."""
        while self.cut:
            cut, self.cut = self.cut, []
            await self._sync_cut(cut)
            if self.cut:
                self._is_woken.clear()
                await self._sleep(self._runtime.clock.now_ms() + RETRY_MS)

    async def _sync_cut(self, cut: list[Partition]) -> None:
        finished = asyncio.get_running_loop().create_future()

        def finish() -> None:
            if not finished.done():
                finished.set_result(None)

        works: list[tuple[Partition, FlushWork]] = []
        restores: list[tuple[Partition, ProducersRestore]] = []
        for partition in cut:
            with self._logging(partition):
                works.append((partition, partition.log.begin_flush()))
                restore = partition.log.begin_restore()
                if restore is not None:
                    restores.append((partition, restore))

        def run() -> None:
            for _, work in works:
                work.run()
            for _, restore in restores:
                restore.run()

        def done() -> None:
            for partition, work in works:
                with self._logging(partition):
                    partition.log.finish_flush(work)
            for partition, restore in restores:
                partition.log.finish_restore(restore)
            self._recovery_points_fell(finish)

        self._runtime.offload(run, done)
        await finished

    @contextmanager
    def _logging(self, partition: Partition) -> Generator[None]:
        try:
            yield
        except KafkaStorageError as error:
            # Of a log that was deleted meanwhile nothing is wanted any more.
            if self._replicas.find(partition.topic, partition.index) is partition:
                self._runtime.log.error("sync failed", topic=partition.topic, partition=partition.index, why=str(error))
                if partition.log.failure is None:
                    # For want of descriptors: nothing is lost by trying again.
                    self.cut.append(partition)
