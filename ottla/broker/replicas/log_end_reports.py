"""What this broker reports of its logs of partitions that no replica can lead, so that the controller can choose.

That is so when all who were in the ISR or ELR have lost data, as after a power failure of all machines. From the state
without a leader on, the replica's log does not grow: what is reported under that state's leader epoch stays true for as
long as the session in which it is reported. It is one key of the metadata store, and goes with the session.
"""

from collections.abc import Callable

from ottla.cluster.image import NO_LEADER, BrokerInfo, LogEnd, PartitionInfo
from ottla.cluster.registration import report_log_ends
from ottla.cluster.store import CommitResult, Committed, LeaseLost, Transaction
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.timer.wheel import TimerEntry

RETRY_MS = 1000


class LogEndReports:
    def __init__(
        self,
        *,
        session: Callable[[], tuple[BrokerInfo, int] | None],
        commit: Callable[[Transaction, Callable[[CommitResult], None]], None],
        when_applied: Callable[[int, Callable[[], None]], None],
        schedule: "Callable[[int, Callable[[], None]], TimerEntry]",
    ) -> None:
        """`session` gives this broker as the image has it, and its lease; `schedule` runs an action after a while."""
        self._session = session
        self._commit = commit
        self._when_applied = when_applied
        self._schedule = schedule
        self._log_ends: dict[tuple[bytes, int], LogEnd] = {}
        self._is_under_way = False
        self._is_stopped = False
        self._timer: TimerEntry | None = None

    def state_applied(self, partition: Partition, state: PartitionInfo) -> None:
        """The replica has taken this state, and nothing is written to its log any more if it has no leader."""
        log = partition.log
        if state.leader == NO_LEADER and not state.isr and not state.elr and log.failure is None:
            end = LogEnd(state.leader_epoch, _last_epoch(log), log.log_end_offset)
            self._log_ends[partition.topic_id, partition.index] = end
        else:
            self.forget(partition)

    def forget(self, partition: Partition) -> None:
        self._log_ends.pop((partition.topic_id, partition.index), None)

    def update(self) -> None:
        """Reports what is not reported yet: at the end of every update of the metadata."""
        session = None if self._is_under_way or self._is_stopped else self._session()
        if session is None or session[0].log_ends == self._log_ends:
            return
        self._is_under_way = True
        self._commit(report_log_ends(session[0], self._log_ends, session[1]), self._answered)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _answered(self, result: CommitResult) -> None:
        self._is_under_way = False
        if isinstance(result, Committed):
            self._when_applied(result.revision, self.update)
        elif not isinstance(result, LeaseLost) and not self._is_stopped:
            self._timer = self._schedule(RETRY_MS, self.update)


def _last_epoch(log: Log) -> int:
    """Of the last record; -1 where there is none. That an epoch has begun here says nothing about records: a broker may
    have lost them all, and led for a moment by what the metadata still said."""
    return log.epochs.epoch_at(log.log_end_offset - 1) if log.log_start_offset < log.log_end_offset else -1
