"""Which batches a pass of the log cleaner must not drop, for the sake of transactions and of producers.

The records of an aborted transaction go with the first pass, and never outdate a record before them. The marker that
ends a transaction goes after its records: as long as a pass meets a batch of the transaction, emptied ones included,
the marker stays. The last batch of each producer stays, emptied if need be, because the producer's next sequence
number is read off it; of a producer without batches of its epoch it is the marker that has raised the epoch.

Markers have keys that say commit or abort, and are not outdated by each other (§45.7).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.protocol.records.batch import BatchHeader
from ottla.storage.producer_entry import ProducerState
from ottla.storage.transactions import AbortedTxn


class MarkerRetention:
    """What one pass has met, from the first segment to the last, across those that it writes."""

    def __init__(self, aborted: Iterable[AbortedTxn], producers: Mapping[int, ProducerState]) -> None:
        self._aborted: dict[int, list[AbortedTxn]] = defaultdict(list)
        for entry in aborted:
            self._aborted[entry.producer_id].append(entry)
        self._producers = producers
        # Producers with a batch of a transaction whose marker has not come yet.
        self._with_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to an aborted transaction."""
        if not header.is_transactional or header.producer_id not in self._aborted:
            return False
        offset = header.base_offset
        return any(entry.first_offset <= offset <= entry.last_offset for entry in self._aborted[header.producer_id])

    def entry_of(self, header: BatchHeader) -> AbortedTxn | None:
        """That of the transaction which a control batch ends by aborting it."""
        for entry in self._aborted.get(header.producer_id, ()):
            if entry.last_offset == header.base_offset:
                return entry
        return None

    def saw_data(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._with_data.add(header.producer_id)

    def ends_seen_data(self, header: BatchHeader) -> bool:
        """Of a control batch: whether this pass has met a batch of what it ends. Ask once."""
        if header.producer_id not in self._with_data:
            return False
        self._with_data.discard(header.producer_id)
        return True

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        state = self._producers.get(header.producer_id)
        if state is None:
            return False
        if state.batches:
            return state.batches[-1].last_offset == header.last_offset
        return header.is_control and header.producer_epoch == state.epoch
