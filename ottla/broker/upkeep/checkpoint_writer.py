"""Writing a checkpoint file without holding up the loop: two syncs of a busy disk may take a second."""

from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.logging import cause_of
from ottla.broker.runtime import Runtime
from ottla.storage.checkpoints import TopicPartition
from ottla.storage.log_directory import Checkpoint, LogDirectory
from ottla.storage.log_start_file import LogStartCheckpoint


class CheckpointWriter:
    """Of one file: what it says is gathered on the loop when a thread is free to write it."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        make: "Callable[[], Checkpoint | LogStartCheckpoint]",
        *,
        withdraw: Callable[[], None] | None = None,
    ) -> None:
        """`withdraw`: of a file that is better removed than wrong, where it cannot be written. Called in a thread;
        raises KafkaError."""
        self._runtime = runtime
        self._name = name
        self._make = make
        self._withdraw = withdraw
        self.has_failed = False
        """Whether the last write did."""
        self._is_writing = False
        self._is_outdated = False
        # Who waits for the write that is to come.
        self._waiting: list[Callable[[bool], None]] = []

    def request(self, done: Callable[[bool], None] | None = None) -> None:
        """Write the file soon. Requests during a write make one more write.

        `done` is called when that was tried, with whether the file does not say anything else now."""
        if done is not None:
            self._waiting.append(done)
        if self._is_writing:
            self._is_outdated = True
            return
        checkpoint = self._make()
        self._is_writing, self._is_outdated = True, False
        waiting, self._waiting = self._waiting, []
        failures: list[Exception] = []

        def work() -> None:
            try:
                checkpoint.write()
            except Exception as error:
                failures.append(error)
                self._try_to_withdraw(failures)

        self._runtime.offload(work, lambda: self._tried(failures, waiting))

    def _try_to_withdraw(self, failures: list[Exception]) -> None:
        if self._withdraw is not None:
            try:
                self._withdraw()
            except Exception as error:
                failures.append(error)

    def _tried(self, failures: list[Exception], waiting: list[Callable[[bool], None]]) -> None:
        self._is_writing = False
        self.has_failed = bool(failures)
        for error in failures:
            self._runtime.log.storage.error("checkpoint failed", name=self._name, **cause_of(error))
        was_withdrawn = self._withdraw is not None and len(failures) == 1
        for done in waiting:
            self._runtime.guard(partial(done, not failures or was_withdrawn))
        if self._is_outdated:
            self.request()


class RecoveryCheckpoints:
    """The checkpoints that recovery goes by, written when what they say is no longer true."""

    def __init__(
        self, runtime: Runtime, directory: LogDirectory, high_watermarks: Callable[[], Mapping[TopicPartition, int]]
    ) -> None:
        """`high_watermarks` gives those of all replicas that are used."""
        self._directory = directory
        self._high_watermarks_now = high_watermarks
        self._high_watermarks = CheckpointWriter(runtime, "high watermarks", self.high_watermark_checkpoint)
        self._cleaned_offsets = CheckpointWriter(runtime, "cleaned offsets", directory.cleaner_checkpoint)
        self._recovery_points = CheckpointWriter(
            runtime,
            "recovery points",
            directory.recovery_point_checkpoint,
            withdraw=directory.withdraw_recovery_points,
        )
        # Who waits until none is too high any more.
        self._held_up: list[Callable[[], None]] = []
        self._log_starts = CheckpointWriter(runtime, "log starts", directory.log_start_checkpoint)

    @property
    def has_failed(self) -> bool:
        writers = (self._high_watermarks, self._cleaned_offsets, self._recovery_points, self._log_starts)
        return any(writer.has_failed for writer in writers)

    def high_watermark_checkpoint(self) -> Checkpoint:
        return self._directory.high_watermark_checkpoint(self._high_watermarks_now())

    def high_watermarks_rose(self) -> None:
        """It is time to say so."""
        self._high_watermarks.request()

    def cleaned_offsets_changed(self) -> None:
        """A log was compacted."""
        self._cleaned_offsets.request()

    def recovery_points_fell(self, done: Callable[[], None] | None = None) -> None:
        """Logs were cut: what comes to stand there must not count as durable, or as read, for what is gone.

        `done` is called when the checkpoint no longer says so: it was written, or removed, which only makes a start
        after a crash take longer. Where the disk allows neither, it is tried again (`retry`)."""
        self._recovery_points.request(partial(self._lowered, done or _nothing))

    def _lowered(self, done: Callable[[], None], is_lowered: bool) -> None:
        if is_lowered:
            done()
        else:
            self._held_up.append(done)

    def recovery_points_rose(self) -> None:
        """It is time to say so."""
        self._recovery_points.request()

    def retry(self) -> None:
        """To be called now and then."""
        held_up, self._held_up = self._held_up, []
        for done in held_up:
            self.recovery_points_fell(done)

    def log_deleted(self) -> None:
        """What a later log of its name has must count neither as durable nor as committed for what is gone."""
        self.recovery_points_fell()
        self._high_watermarks.request()

    def log_starts_rose(self, done: Callable[[], None] | None = None) -> None:
        """Records were deleted. `done` is called when the checkpoint says so, or could not be written."""
        self._log_starts.request(None if done is None else lambda _: done())


def _nothing() -> None:
    """No follower waits; it is tried again all the same."""
