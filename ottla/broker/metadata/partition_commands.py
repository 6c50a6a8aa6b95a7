"""What administrators ask of partitions: decided on the image, committed, answered when the image shows it.

A decision that another broker was quicker than is made again on the image that shows what that one did. What is not
done when the time is over is answered REQUEST_TIMED_OUT, and may still be done.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.cluster.controller import CHANGES_PER_TRANSACTION, PartitionChange, transactions
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import CommitResult, Committed, Conflict, Unavailable
from ottla.protocol.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from ottla.timer.wheel import TimerEntry

# Another broker may be quicker so many times in a row.
TRIES_MAX = 10

PartitionKey = tuple[str, int]
Decide = Callable[[MetadataImage, PartitionKey], PartitionChange | None]
"""None where nothing is to change; raises the KafkaError of the answer."""
Outcomes = Mapping[PartitionKey, KafkaError | None]
"""None for a partition that is now as it was asked to be."""


def change_partitions(
    runtime: Runtime,
    metadata: ClusterMetadata,
    partitions: Iterable[PartitionKey],
    decide: Decide,
    *,
    timeout_ms: int,
    done: Callable[[Outcomes], None],
) -> None:
    """`done` is called once, perhaps before this returns, with an outcome for each of the partitions."""
    _Command(runtime, metadata, tuple(dict.fromkeys(partitions)), decide, done).carry_out(timeout_ms)


class _Command:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        partitions: Sequence[PartitionKey],
        decide: Decide,
        done: Callable[[Outcomes], None],
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._partitions = partitions
        self._decide = decide
        # None once it was called.
        self._done: Callable[[Outcomes], None] | None = done
        self._outcomes: dict[PartitionKey, KafkaError | None] = {}
        self._timer: TimerEntry | None = None

    def carry_out(self, timeout_ms: int) -> None:
        self._attempt(self._partitions, TRIES_MAX)
        if self._done is not None:
            deadline_ms = self._runtime.clock.now_ms() + max(timeout_ms, 0)
            self._timer = self._runtime.wheel.schedule(deadline_ms, self._time_is_over)

    def _attempt(self, partitions: Sequence[PartitionKey], tries_left: int) -> None:
        image = self._metadata.image
        changes: list[PartitionChange] = []
        for key in partitions:
            try:
                change = self._decide(image, key)
            except KafkaError as error:
                self._outcomes[key] = error
                continue
            if change is None:
                self._outcomes[key] = None
            else:
                changes.append(change)
        for start in range(0, len(changes), CHANGES_PER_TRANSACTION):
            self._commit(changes[start : start + CHANGES_PER_TRANSACTION], image, tries_left)
        self._maybe_done()

    def _commit(self, changes: Sequence[PartitionChange], image: MetadataImage, tries_left: int) -> None:
        (transaction,) = transactions(changes, image)
        keys = [(change.topic, change.index) for change in changes]

        def answered(result: CommitResult) -> None:
            metadata = self._metadata
            if isinstance(result, Committed):
                metadata.when_applied(result.revision, lambda: self._end(dict.fromkeys(keys)))
            elif isinstance(result, Conflict) and tries_left > 1 and self._done is not None:
                metadata.when_applied(image.revision + 1, lambda: self._attempt(keys, tries_left - 1))
            else:
                self._end(dict.fromkeys(keys, _refusal(result)))

        self._metadata.commit(transaction, answered)

    def _end(self, outcomes: Outcomes) -> None:
        self._outcomes.update(outcomes)
        self._maybe_done()

    def _time_is_over(self) -> None:
        late = [key for key in self._partitions if key not in self._outcomes]
        self._end(dict.fromkeys(late, error_for(ErrorCode.REQUEST_TIMED_OUT, "it was not done in time")))

    def _maybe_done(self) -> None:
        if self._done is None or len(self._outcomes) < len(self._partitions):
            return
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
        done(self._outcomes)


def _refusal(result: CommitResult) -> KafkaError:
    if isinstance(result, Unavailable):
        return error_for(ErrorCode.REQUEST_TIMED_OUT, f"the metadata store does not answer: {result.reason}")
    return error_for(ErrorCode.NOT_CONTROLLER, "other brokers were quicker again and again, try again")
