"""What has to be seen of transactions when faults have stopped: every one is complete, and readers see it or not."""

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import TRANSACTION_STATE
from ottla.coordinator.transactions.entry import VALID_PREVIOUS, TransactionMetadata, TransactionState
from ottla.coordinator.transactions.records import parse_transaction_key, parse_transaction_value
from tests.simulation.cluster import transaction_agreement as agreement
from tests.simulation.cluster.committed_reading import CommittedReader
from tests.simulation.cluster.plan import STATE_PARTITIONS
from tests.simulation.transaction_book import NEVER

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

TRIES, TRY_AGAIN_MS = 20, 200


class TransactionRest:
    def __init__(self, world: "ClusterWorld") -> None:
        self._world, self._judge = world, world.judge
        self._reader = CommittedReader(world, world.make_rng("auditor of transactions"), "auditor", is_auditor=True)

    def incomplete(self) -> list[str]:
        """Transactions that are open or decided, and what waits for them (I-23)."""
        return [
            what
            for node in self._world.nodes.values()
            for what in (
                *_open_in_coordinators(node.broker),
                *self._open_in_partitions(node.broker),
                *_left_over(node.broker),
            )
        ]

    def unexpired(self) -> list[str]:
        """Transactional ids that no client uses any more."""
        return [
            f"{transactional_id} is {entry.metadata.state.name}"
            for node in self._world.nodes.values()
            for hosted in coordinator_of(node.broker).topic
            for transactional_id, entry in hosted.coordinator.shard.entries.items()
        ]

    async def judge(self) -> None:
        """I-22 and I-24, when nothing is written any more."""
        try:
            for partition in self._world.book.partitions:
                await self._read_all(partition)
            starts = {partition: self._readable_from(partition) for partition in self._world.book.partitions}
            self._world.book.judge_all(starts, is_compacted=self._world.plan.compacts)
            for transactional_id in self._world.book.lines:
                await self._judge_offset(transactional_id)
        finally:
            self._reader.close()
        for index in range(STATE_PARTITIONS):
            self._judge_states(index)
        for partition in self._world.book.partitions:
            self._judge_replicas(*partition)

    def _readable_from(self, partition: tuple[str, int]) -> int:
        """The log end where a transaction hangs in the leader: readers of committed records do not get past it."""
        state = self._world.truth.partition(*partition)
        assert state is not None, "the topic of transactions is not deleted"
        replica = self._world.nodes[state.leader].broker.replicas.find(*partition)
        end_offset: int = replica.log.log_end_offset
        return self._world.deleted_before(partition) if replica.last_stable_offset == end_offset else end_offset

    def _open_in_partitions(self, broker: Any) -> list[str]:
        return [
            f"{partition} is stable up to {partition.last_stable_offset} of {partition.high_watermark}"
            for partition in broker.replicas
            if partition.last_stable_offset != partition.log.log_end_offset and not self._hangs(partition)
        ]

    def _hangs(self, partition: Any) -> bool:
        """Whether nothing keeps it from being stable but transactions whose markers expired while it was away: on Kafka
        such a hanging transaction stays open until an administrator aborts it."""
        open_since = agreement.open_transactions(partition.log)
        undecided = self._world.undecided_in((partition.topic, partition.index))
        return partition.high_watermark == partition.log.log_end_offset and bool(open_since) and open_since <= undecided

    def _judge_replicas(self, topic: str, index: int) -> None:
        """I-31 and I-32."""
        state = self._world.truth.partition(topic, index)
        if state is None:
            return
        nodes, undecided = self._world.nodes, self._world.undecided_in((topic, index))
        logs = {node_id: nodes[node_id].broker.replicas.find(topic, index).log for node_id in state.isr}
        ids = {transaction.pair[0]: transaction.transactional_id for transaction in self._world.book.transactions}
        expire = self._world.plan.expires_producers
        found = [("I-32", what) for what in agreement.differences(logs, undecided, expire=expire)]
        for node_id, log in logs.items():
            found += [("I-32", f"broker {node_id}: {what}") for what in agreement.differences_from_log(log)]
            found += [("I-31", f"broker {node_id}: {what}") for what in agreement.overlapping(log, ids)]
        for invariant, what in found:
            self._judge.violated(invariant, f"{topic}-{index}, {what}")
        self._judge.counts["producers compared"] += len(logs)

    async def _read_all(self, partition: tuple[str, int]) -> None:
        self._reader.positions[partition] = self._world.deleted_before(partition)
        tries = TRIES
        while tries:
            stable = await self._reader.read(partition)
            if 0 <= stable <= self._reader.positions[partition]:
                return
            if stable < 0:
                # The first one may have asked a broker that has stopped leading.
                tries -= 1
                await asyncio.sleep(TRY_AGAIN_MS / 1000)

    async def _judge_offset(self, transactional_id: str) -> None:
        found = await self._reader.read_offset(transactional_id)
        for _ in range(TRIES):
            if found is not None:
                break
            # The first one may have asked a broker that has stopped coordinating.
            await asyncio.sleep(TRY_AGAIN_MS / 1000)
            found = await self._reader.read_offset(transactional_id)
        if self._world.book.lines[transactional_id].copies:
            self._judge_copies(transactional_id, found)
            return
        expected = self._world.book.last_offsets(transactional_id)
        if found not in expected:
            self._judge.violated("I-24", f"{transactional_id} has committed the offset {expected}, {found} is read")
        elif found != NEVER:
            self._judge.counts["offsets of transactions"] += 1

    def _judge_copies(self, transactional_id: str, offset: int | None) -> None:
        """Exactly once, from end to end (I-24)."""
        wrong = "nothing is read" if offset is None else self._world.book.wrong_copy(transactional_id, offset)
        if wrong is not None:
            self._judge.violated("I-24", f"{transactional_id}: {wrong}")
        self._judge.counts["inputs copied once"] += max(offset or 0, 0)

    def _judge_states(self, index: int) -> None:
        """I-8 and I-22: the whole life of every transactional id, as its coordinators have written it."""
        states: dict[str, TransactionMetadata] = {}
        for record in self._world.rest.final_records(TRANSACTION_STATE, index):
            transactional_id = parse_transaction_key(bytes(record.key or b""))
            if transactional_id is None:
                continue
            if record.value is None:
                states.pop(transactional_id, None)
                continue
            state, before = parse_transaction_value(record.value), states.get(transactional_id)
            # Compaction leaves states out.
            wrong = None if before is None or self._world.plan.compacts else _wrong(before, state)
            if wrong is not None:
                self._judge.violated("I-8", f"{transactional_id} at {record.offset}: {wrong}")
            states[transactional_id] = state
        state_of = {id_: entry.metadata for id_, entry in self._entries(index).items()}
        if state_of != states:
            self._judge.violated("I-17", f"{TRANSACTION_STATE}-{index}: {state_of}, its log says {states}")

    def _entries(self, index: int) -> Any:
        state = self._world.truth.partition(TRANSACTION_STATE, index)
        assert state is not None, "internal topics are not deleted"
        coordinator = coordinator_of(self._world.nodes[state.leader].broker)
        return next(hosted.coordinator.shard.entries for hosted in coordinator.topic if hosted.index == index)


def coordinator_of(broker: Any) -> Any:
    return broker.parts.transaction_loader.coordinator


def _wrong(before: TransactionMetadata, after: TransactionMetadata) -> str | None:
    if before.state not in VALID_PREVIOUS[after.state]:
        return f"{before.state.name} became {after.state.name}"
    is_same_id = after.producer_id == before.producer_id
    if (after.producer_epoch < before.producer_epoch) if is_same_id else after.producer_epoch:
        return f"the epoch fell from {before} to {after}"
    return None


def _open_in_coordinators(broker: Any) -> list[str]:
    """But not what began in the future: where the clock of this coordinator is minutes behind that of the one before,
    a transaction times out as much later, as on Kafka (§13.5.6)."""
    wall_ms = broker.runtime.broker_clock.wall_ms()
    return [
        f"{transactional_id} is {entry.metadata.state.name}, pending {entry.pending}"
        for hosted in coordinator_of(broker).topic
        for transactional_id, entry in hosted.coordinator.shard.entries.items()
        if entry.pending is not None or entry.metadata.state not in VALID_PREVIOUS[TransactionState.EMPTY]
        if entry.pending is not None or entry.metadata.start_ms <= wall_ms
    ]


def _left_over(broker: Any) -> list[str]:
    """Markers and questions to other brokers that still wait (I-33)."""
    markers = coordinator_of(broker).markers
    verification = broker.parts.transaction_verification
    questions = 0 if verification._verifier is None else verification.verifier.unanswered
    left = (
        (sum(markers.queued_by_broker().values()), "partitions wait for a marker"),
        (markers.waiting_again, "partitions wait for a marker that is sent again"),
        (questions, "questions to coordinators are not answered"),
    )
    return [f"{count} {what}" for count, what in left if count]
