"""ElectLeaders and AlterPartitionReassignments: decided on the image, committed, answered when the image shows it.

A decision that another broker was quicker than is made again on the image that shows what that one did. What is not
done when the time is over is answered REQUEST_TIMED_OUT, and may still be done.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime, TimeLimit, next_step
from ottla.cluster.controller import CHANGES_PER_TRANSACTION, PartitionChange, transactions
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import CommitResult, Transaction, Unavailable
from ottla.protocol.errors import ErrorCode, KafkaError, error_for

PartitionKey = tuple[str, int]
Decide = Callable[[MetadataImage, PartitionKey], PartitionChange | None]
"""None where nothing is to change; raises the KafkaError of the answer."""
Outcomes = Mapping[PartitionKey, KafkaError | None]
"""None for a partition that is now as it was requested."""


async def change_partitions(
    runtime: Runtime,
    metadata: ClusterMetadata,
    partitions: Iterable[PartitionKey],
    decide: Decide,
    *,
    timeout_ms: int,
) -> Outcomes:
    """An outcome for each of the partitions, one transaction of them after the other."""
    keys = tuple(dict.fromkeys(partitions))
    outcomes: dict[PartitionKey, KafkaError | None] = {}
    try:
        with TimeLimit(runtime, timeout_ms):
            for start in range(0, len(keys), CHANGES_PER_TRANSACTION):
                batch = _PartitionBatch(metadata, keys[start : start + CHANGES_PER_TRANSACTION], decide, outcomes)
                await batch.commit()
                await next_step()
    except TimeoutError:
        late = error_for(ErrorCode.REQUEST_TIMED_OUT, "it was not done in time")
        return dict.fromkeys(keys, late) | outcomes
    return outcomes


class _PartitionBatch:
    def __init__(
        self,
        metadata: ClusterMetadata,
        keys: Sequence[PartitionKey],
        decide: Decide,
        outcomes: dict[PartitionKey, KafkaError | None],
    ) -> None:
        """The outcomes are put into `outcomes`."""
        self._metadata = metadata
        self._keys = keys
        self._decide = decide
        self._outcomes = outcomes
        self._changing: list[PartitionKey] = []

    async def commit(self) -> None:
        error: KafkaError | None = None
        try:
            await self._metadata.commit_planned(self._plan, _refusal)
        except KafkaError as refused:
            error = refused
        self._outcomes.update(dict.fromkeys(self._changing, error))

    def _plan(self) -> Transaction:
        image = self._metadata.image
        changes: list[PartitionChange] = []
        for key in self._keys:
            try:
                change = self._decide(image, key)
            except KafkaError as error:
                self._outcomes[key] = error
                continue
            if change is None:
                self._outcomes[key] = None
            else:
                changes.append(change)
        self._keys = self._changing = [(change.topic, change.index) for change in changes]
        return next(transactions(changes, image), Transaction((), ()))


def _refusal(result: CommitResult) -> KafkaError:
    if isinstance(result, Unavailable):
        return error_for(ErrorCode.REQUEST_TIMED_OUT, f"the metadata store does not answer: {result.reason}")
    return error_for(ErrorCode.NOT_CONTROLLER, "other brokers were quicker again and again, try again")
