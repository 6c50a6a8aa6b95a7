"""What this broker reports of its logs of partitions that no replica can lead, so that the controller can choose one.

That is so when all members of the ISR and ELR have lost data, as after a power failure of all machines. From the state
without a leader on, the replica's log does not grow: a report under that state's leader epoch stays true for as long as
the session in which it is made. It is one key of the metadata store, and goes with the session.
"""

import asyncio
from collections.abc import Callable

from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.runtime import Runtime
from ottla.cluster.image import NO_LEADER, BrokerInfo, LogEnd, PartitionInfo
from ottla.cluster.registration import report_log_ends
from ottla.cluster.store import Committed, LeaseLost
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.timer.wheel import TimerEntry

RETRY_MS = 1000
# Reported of each log. The epochs since a replica left the ISR are few.
EPOCHS_MAX = 16


class LogEndReports:
    def __init__(
        self, runtime: Runtime, metadata: Metadata, session: Callable[[], tuple[BrokerInfo, int] | None]
    ) -> None:
        """`session` gives this broker as the image has it, and its lease."""
        self._runtime = runtime
        self._metadata = metadata
        self._session = session
        self._log_ends: dict[tuple[bytes, int], LogEnd] = {}
        self._reporting: asyncio.Task[None] | None = None
        self._timer: TimerEntry | None = None

    def state_applied(self, partition: Partition, state: PartitionInfo) -> None:
        """The replica has taken this state, and nothing is written to its log any more if it has no leader."""
        log = partition.log
        if state.leader == NO_LEADER and not state.isr and not state.elr and log.failure is None:
            end = LogEnd(state.leader_epoch, log.log_end_offset, epochs_with_records(log))
            self._log_ends[partition.topic_id, partition.index] = end
        else:
            self._log_ends.pop((partition.topic_id, partition.index), None)

    def forget(self, partition: Partition) -> None:
        self._log_ends.pop((partition.topic_id, partition.index), None)

    def update(self) -> None:
        """Reports what is not reported yet: at the end of every update of the metadata."""
        if self._reporting is not None:
            return
        session = self._session()
        if session is not None and session[0].log_ends != self._log_ends:
            self._reporting = self._runtime.spawn(self._report(), "reports of log ends")

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _unreported(self) -> tuple[BrokerInfo, int] | None:
        """The session in which there is something to report."""
        session = self._session()
        return None if session is None or session[0].log_ends == self._log_ends else session

    async def _report(self) -> None:
        try:
            while (session := self._unreported()) is not None:
                result = await self._metadata.commit(report_log_ends(session[0], self._log_ends, session[1]))
                if isinstance(result, Committed):
                    await self._metadata.applied(result.revision)
                    continue
                if not isinstance(result, LeaseLost):
                    self._timer = self._runtime.schedule(RETRY_MS, self.update)
                return
        finally:
            self._reporting = None


def epochs_with_records(log: Log) -> tuple[tuple[int, int], ...]:
    """The newest ones, each with its start offset. That an epoch has begun here says nothing about records: a broker
    may have lost them all, and led for a moment by what the metadata still said."""
    if log.log_start_offset == log.log_end_offset:
        return ()
    begun = log.epochs.below(log.log_end_offset)[-EPOCHS_MAX:]
    return tuple((entry.epoch, entry.start_offset) for entry in begun)
