"""What ties a coordinator's answer to the state of a partition when it was asked (KIP-890, §40.3).

The first batch of a transaction is appended when its coordinator has said that the partition belongs to it. Until then
the producer has a guard here, and the append must present the same one. So an answer counts for nothing once a marker
has come in between: the batch would begin a transaction that no marker ends.
"""

from typing import Final


class VerificationGuard:
    """Compared by identity."""

    __slots__ = ("epoch", "is_given_up", "is_late", "lowest_sequence", "made_ms", "raises_epoch")

    def __init__(
        self, epoch: int, lowest_sequence: int, made_ms: int, *, raises_epoch: bool, is_late: bool = False
    ) -> None:
        """`raises_epoch`: each of the producer's transactions has an epoch of its own (Produce v12 and later).
        `is_late`: the batch has a sequence that is in the log, and may be a repetition: nothing is to wait for it."""
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """Of the batches that were asked about: none behind it is appended before it."""
        self.made_ms = made_ms
        self.raises_epoch = raises_epoch
        self.is_late = is_late
        self.is_given_up = False
        """The leader that asked has lost its partition, or leads it in another term; or it has too many guards."""


GUARDS_MAX: Final = 10_000
"""Of one partition: some two megabytes, and two milliseconds to look through them. Not more questions than that are
under way to other brokers."""

NOT_VERIFIED: Final = VerificationGuard(-1, -1, 0, raises_epoch=False)
"""Presented where the configuration asks for no verification."""


class VerificationGuards:
    """Of one partition, by producer id; one for each at most. They are in memory alone.

    That of a question which was refused stays: batches that follow on the refused one must not come before it. So
    there may be many, and no more than GUARDS_MAX: the oldest goes for a new one. If its batch still waits for an
    answer, its producer is to ask again. If not, it only has to begin with the batch that was refused, as it does by
    itself; one that does not is found by its sequence numbers, where the partition knows any of it."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[int, VerificationGuard] = {}

    def get(self, producer_id: int) -> VerificationGuard | None:
        return self.waiting.get(producer_id)

    def take(
        self, producer_id: int, epoch: int, sequence: int, now_wall_ms: int, *, raises_epoch: bool
    ) -> VerificationGuard:
        """The producer's guard: a new one, or the one that waits for an answer already."""
        guard = self.waiting.get(producer_id)
        if guard is None:
            if len(self.waiting) >= GUARDS_MAX:
                self._give_up(next(iter(self.waiting)))
            guard = self.waiting[producer_id] = VerificationGuard(
                epoch, sequence, now_wall_ms, raises_epoch=raises_epoch
            )
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def drop(self, producer_id: int) -> None:
        """A batch of the transaction is appended: later ones need no guard."""
        self.waiting.pop(producer_id, None)

    def drop_by_marker(self, producer_id: int, epoch: int) -> None:
        """A marker has come. Where transactions raise the epoch, one with the epoch of the guard ends the transaction
        before, and the guard is that of the next one, which is being registered."""
        guard = self.waiting.get(producer_id)
        if guard is not None and not (guard.raises_epoch and guard.epoch == epoch):
            del self.waiting[producer_id]

    def expire(self, now_wall_ms: int, expiration_ms: int) -> None:
        """Those that are too old go."""
        for producer_id, guard in list(self.waiting.items()):
            if now_wall_ms - guard.made_ms >= expiration_ms:
                del self.waiting[producer_id]

    def clear(self) -> None:
        self.waiting.clear()

    def end_term(self) -> None:
        """Who still waits for an answer is to ask again."""
        for producer_id in list(self.waiting):
            self._give_up(producer_id)

    def _give_up(self, producer_id: int) -> None:
        self.waiting.pop(producer_id).is_given_up = True
