"""Compaction of logs with the policy `compact`: one log at a time, the heavy part in a thread.

A round looks at every log once, at a few in each step of the loop. When a whole round has found nothing to do, the
cleaner rests for `log.cleaner.backoff.ms`. Whatever goes wrong with one log ends its pass and not the round.
"""

import time
from collections.abc import Callable, Iterable

from ottla.broker.logging import cause_of
from ottla.broker.runtime import Runtime
from ottla.broker.upkeep.log_rounds import LOGS_AT_ONCE, STEP_MS
from ottla.replication.partition import Partition
from ottla.storage.compaction import CompactionPlan, CompactionResult
from ottla.storage.segment_swap import SegmentSwap
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry

# Compaction gets two thirds of what time the interpreter has to spare.
WORK_S, PAUSE_S = 0.001, 0.0005


class Cleaner:
    def __init__(self, runtime: Runtime, partitions: Iterable[Partition], compacted: Callable[[], None]) -> None:
        """`partitions` gives those that this broker has then. `compacted` is called after every pass that changed a
        log."""
        self._runtime = runtime
        self._partitions = partitions
        self._compacted = compacted
        self.compaction_ns = 0
        """How long compactions have taken in all, without those that are under way."""
        self.dirty_ratio_max: float | None = None
        """Of the logs that the last whole round has met; None before it, and without a cleaner."""
        self._round: list[Partition] = []
        self._round_dirty_ratio_max = 0.0
        self._found_work = False
        self._timer: TimerEntry | None = None
        # Called when a whole round has found nothing more: of the round under way, and of the next one.
        self._waiting: list[Callable[[], None]] = []
        self._waiting_next: list[Callable[[], None]] = []
        self._rests_since_ms = 0
        # The log whose compacted segments are being put in place.
        self._swapping: Partition | None = None

    def start(self) -> None:
        self._rests_since_ms = self._runtime.broker_clock.now_ms()
        self._schedule()

    def configured(self) -> None:
        """`log.cleaner.backoff.ms` may have another value: it holds for the rest under way too."""
        if self._timer is not None and self._timer.pending:
            self._timer.cancel()
            self._schedule()

    def _schedule(self) -> None:
        deadline_ms = self._rests_since_ms + self._runtime.config.log_cleaner_backoff_ms
        wait_ms = max(deadline_ms - self._runtime.broker_clock.now_ms(), 0)
        self._timer = self._runtime.schedule(wait_ms, self._begin_round, TimerKind.COMPACTION)

    def stop(self) -> None:
        self._round = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._swapping is not None:
            # Nothing may change in a log that is being closed.
            try:
                self._swapping.log.swaps.abandon()
            except Exception as error:
                self._log_failure(self._swapping, error)

    def clean_now(self, done: Callable[[], None]) -> None:
        """Rounds begin at once, or behind the one that is under way. `done` is called when a whole round of them has
        found nothing to do; not if the cleaner stops before."""
        self._waiting_next.append(done)
        if self._timer is not None and self._timer.pending:
            self._timer.cancel()
            self._begin_round()

    def _begin_round(self) -> None:
        self._found_work = False
        self._waiting += self._waiting_next
        self._waiting_next = []
        self._round = []
        self._round_dirty_ratio_max = 0.0
        if self._runtime.config.log_cleaner_enable:
            self._round = [partition for partition in self._partitions if partition.log.config.is_compacted]
        self._next()

    def _next(self) -> None:
        deadline_ms, looked_at = self._runtime.clock.now_ms() + STEP_MS, 0
        while self._round:
            if looked_at == LOGS_AT_ONCE or self._runtime.clock.now_ms() >= deadline_ms:
                self._runtime.soon(self._next)
                return
            looked_at += 1
            partition = self._round.pop()
            try:
                plan = self._plan(partition)
            except Exception as error:
                # Otherwise no log would be compacted any more.
                self._log_failure(partition, error)
                continue
            if plan is not None:
                self._clean(partition, plan)
                return
        if self._timer is None:
            return
        self.dirty_ratio_max = self._round_dirty_ratio_max if self._runtime.config.log_cleaner_enable else None
        if not self._found_work:
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                self._runtime.guard(done)
        if self._found_work or self._waiting_next:
            self._runtime.soon(self._begin_round)
        else:
            self.start()

    def _plan(self, partition: Partition) -> "CompactionPlan | None":
        # Most brokers have nothing to compact when they start.
        from ottla.storage.compaction import plan_compaction

        now_wall_ms = self._runtime.broker_clock.wall_ms()
        upper_bound = partition.log.compactable_offset(partition.high_watermark)
        return plan_compaction(
            partition.log, now_wall_ms=now_wall_ms, upper_bound=upper_bound, note_dirty_ratio=self._note_dirty_ratio
        )

    def _note_dirty_ratio(self, ratio: float) -> None:
        self._round_dirty_ratio_max = max(self._round_dirty_ratio_max, ratio)

    def _clean(self, partition: Partition, plan: "CompactionPlan") -> None:
        from ottla.storage.compaction import compact

        began_ns = self._runtime.clock.now_ns()
        results: list[CompactionResult] = []
        failures: list[Exception] = []

        def work() -> None:
            try:
                results.append(compact(plan, _Pauses().maybe_pause))
            except Exception as error:
                failures.append(error)

        def done() -> None:
            self.compaction_ns += self._runtime.clock.now_ns() - began_ns
            for error in failures:
                self._log_failure(partition, error)
            if results:
                self._begin_swap(partition, results[0])
            else:
                self._next()

        self._runtime.offload(work, done, may_last=True)

    def _begin_swap(self, partition: Partition, result: "CompactionResult") -> None:
        from ottla.storage.compaction import begin_swap

        try:
            swap = begin_swap(partition.log, result)
        except Exception as error:
            self._log_failure(partition, error)
            swap = None
        if swap is None:
            self._next()
            return
        self._swapping = partition
        self._runtime.offload(swap.prepare, lambda: self._apply(partition, result, swap))

    def _apply(self, partition: Partition, result: "CompactionResult", swap: "SegmentSwap") -> None:
        """One group of segments in each step of the loop."""
        from ottla.storage.segment_swap import SwapStep

        try:
            step = partition.log.swaps.apply(swap, self._runtime.broker_clock.wall_ms())
            if step is SwapStep.APPLY:
                self._runtime.soon(lambda: self._apply(partition, result, swap))
                return
            if step is SwapStep.SYNC:
                self._runtime.offload(swap.sync, lambda: self._apply(partition, result, swap))
                return
        except Exception as error:
            self._log_failure(partition, error)
        else:
            if not swap.is_abandoned:
                # Only a pass that came to something makes the next round begin at once; a damaged log does not.
                self._found_work = True
                self._log_success(partition, result)
        self._swapping = None
        # Also of a part of the segments.
        self._runtime.guard(self._compacted)
        self._next()

    def _log_success(self, partition: Partition, result: "CompactionResult") -> None:
        self._runtime.log.storage.info(
            "compaction",
            topic=partition.topic,
            partition=partition.index,
            bytes_before=result.bytes_before,
            bytes_after=result.bytes_after,
        )

    def _log_failure(self, partition: Partition, error: Exception) -> None:
        self._runtime.log.storage.error(
            "compaction failed", topic=partition.topic, partition=partition.index, **cause_of(error)
        )


class _Pauses:
    """Keeps the thread of a compaction from holding the interpreter for longer than the loop may wait.

    A thread that only computes gives the interpreter away every 5 ms if it is asked to, and keeps it for much longer
    if the system has put it to sleep. One that sleeps by itself holds nothing then."""

    def __init__(self) -> None:
        self._resumed = time.perf_counter()

    def maybe_pause(self) -> None:
        if time.perf_counter() - self._resumed >= WORK_S:
            time.sleep(PAUSE_S)
            self._resumed = time.perf_counter()
