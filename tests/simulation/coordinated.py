"""Transactional producers of the world of one broker, with its coordinator: the clients and the judge of the cluster's.

They see a cluster of one: what they ask of their world is here.
"""

import random
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from tests.simulation.calm import wrong_after
from tests.simulation.cluster.client import PASSING
from tests.simulation.cluster.committed_reading import CommittedReader
from tests.simulation.cluster.copying import Copier
from tests.simulation.cluster.decisions import Decisions, OpenTransaction
from tests.simulation.cluster.known_ids import KnownIds
from tests.simulation.cluster.replicas import Committed, TrackedLog
from tests.simulation.cluster.transacting import PARTITIONS, TOPIC, Transactor, transactions_topic
from tests.simulation.cluster.transaction_rest import TransactionRest
from tests.simulation.traffic import PROMPT_MS, records_of
from tests.simulation.transaction_book import TransactionBook
from tests.simulation.wire import Wire, connect

if TYPE_CHECKING:
    from tests.simulation.world import World

NODE_ID = 0
# The longest timeout of a transaction, the interval of the coordinator's checks, an answer that is late.
TRANSACTION_MS = 30_000
PARTICIPANTS = (TOPIC, CONSUMER_OFFSETS)
Partition = tuple[str, int]


class Coordinated:
    """What the clients call their world."""

    def __init__(self, world: "World", address: tuple[str, int]) -> None:
        self._world = world
        self.judge, self.trace = world.judge, world.trace
        self.plan = SimpleNamespace(
            faults=frozenset(),
            compacts=False,
            deletes_transactions=False,
            expires_producers=False,
            expires_transactional_ids=False,
            uses_topic_ids=False,
        )
        self.topics = [TOPIC]
        self.bootstrap = {NODE_ID: address}
        self.book = TransactionBook(self.judge, PARTITIONS, loses_records=False)
        self.logs: dict[Partition, Committed] = {}
        self.decisions = Decisions(self.judge, self.committed_end)
        self.inspector = SimpleNamespace(decisions=self.decisions)
        self.transactors: list[Transactor] = []
        self.writing_is_over = False
        # As the judge at rest knows the cluster.
        self.rest = self
        self.truth = SimpleNamespace(partition=lambda *_: SimpleNamespace(leader=NODE_ID, isr=[NODE_ID]))

    @property
    def nodes(self) -> dict[int, Any]:
        return {NODE_ID: self._world._running()}

    @property
    def is_over(self) -> bool:
        return self._world.is_over

    @property
    def now_us(self) -> int:
        return self._world.loop.now_us

    def wall_ms(self) -> int:
        return self._world.clock.wall_ms()

    def make_rng(self, purpose: str) -> random.Random:
        return self._world._rng(f"coordinated {purpose}")

    async def sleep_ms(self, duration_ms: int) -> None:
        await self._world.sleep_ms(duration_ms)

    async def connect_to(self, address: tuple[str, int], client_id: str) -> Wire:
        return await connect(self._world.network, self.judge, address, client_id, Wire)

    def judge_error(self, error: ErrorCode, what: str) -> None:
        if error not in PASSING:
            self.judge.violated("answers", f"{what} was answered {error.name}")

    # What is in the logs.

    def log_of(self, partition: Partition) -> Committed:
        """What is known of it, over all lives of the broker."""
        if partition not in self.logs:
            name, index = partition
            committed = self.logs[partition] = Committed(f"{name}-{index}")
            committed.control_batch_came = partial(self.decisions.marker_came, partition)
        return self.logs[partition]

    def committed_end(self, partition: Partition) -> int:
        return self.logs[partition].end_offset if partition in self.logs else 0

    def deleted_before(self, partition: Partition) -> int:
        return self.log_of(partition).start_offset

    def undecided_in(self, partition: Partition) -> set[int]:
        return self.log_of(partition).undecided

    def final_records(self, topic: str, index: int) -> list[Any]:
        log = self.nodes[NODE_ID].broker.replicas.partition(topic, index).log
        chunk = log.read(0, 1 << 30, upper_bound=log.log_end_offset, min_one_batch=True, wait=True)
        return records_of(chunk.records)

    def authority_of(self, group_id: str, wire: Any) -> Any:
        return self._world.authority_of(group_id, wire)

    # The story.

    async def create_topic(self) -> None:
        topic = transactions_topic(self.plan)  # type: ignore[arg-type]
        topic.replication_factor = 1
        wire = await self._world.connect("admin")
        response = await wire.call(CreateTopicsRequest(topics=[topic]), 7, within_ms=PROMPT_MS)
        wire.close()
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message

    def lives(self) -> list[Any]:
        """Three producers, of which the last two have one transactional id in every other world, one that copies, and a
        reader."""
        ids = ["pay-0", "pay-1", "pay-1" if self.make_rng("rivals").random() < 0.5 else "pay-2"]
        for number, transactional_id in enumerate(ids):
            name = f"transactor-{number}"
            self.transactors.append(Transactor(self, self.make_rng(name), name, transactional_id))  # type: ignore[arg-type]
        for transactional_id in ids:
            self.book.lines[transactional_id].rivals = ids.count(transactional_id)
        self.transactors.append(Copier(self, self.make_rng("copier"), "copier", "copy-0"))  # type: ignore[arg-type]
        self.book.lines["copy-0"].copies = True
        reader = CommittedReader(self, self.make_rng("reader"), "committed-reader")  # type: ignore[arg-type]
        return [*(each.live() for each in self.transactors), reader.live()]

    async def finish(self) -> None:
        """Faults have stopped: every transaction ends, and readers see it or not (I-20 to I-24)."""
        self.writing_is_over = True
        rest = TransactionRest(self)  # type: ignore[arg-type]
        await self._wait("I-20", lambda: [f"{each.name} goes on" for each in self.transactors if not each.is_done])
        await self._wait("I-23", rest.incomplete)
        await rest.judge()

    async def _wait(self, invariant: str, still_wrong: Any) -> None:
        if wrong := await wrong_after(TRANSACTION_MS, still_wrong):
            self.judge.violated(invariant, f"after {TRANSACTION_MS} ms of calm: {'; '.join(wrong)}")


class TransactionInspector:
    """After every step of one life of the broker: I-8, I-17, I-29, I-31, I-35 to I-38."""

    def __init__(self, coordinated: Coordinated, broker: Any) -> None:
        self._coordinated, self._broker = coordinated, broker
        self._judge, self._decisions = coordinated.judge, coordinated.decisions
        self._known_ids = KnownIds(self._judge, self._decisions, broker, "the broker")
        self._tracked: dict[Partition, TrackedLog] = {}
        self._seen: dict[Partition, tuple[int, int]] = {}

    def look(self) -> None:
        for name in (TRANSACTION_STATE, *PARTICIPANTS):
            for replica in self._broker.replicas.of_topic(name):
                signature = replica.log.log_end_offset, _stored_end(replica)
                if self._seen.get((name, replica.index)) != signature:
                    self._seen[name, replica.index] = signature
                    self._look_at(replica)
        self._decisions.end_step()
        for name in PARTICIPANTS:
            for replica in self._broker.replicas.of_topic(name):
                self._look_at_open(name, replica)
        self._known_ids.look()

    def _look_at_open(self, name: str, replica: Any) -> None:
        producers = replica.log.producers
        found = {
            producer_id: OpenTransaction(offset, producers.states[producer_id].epoch)
            for producer_id, offset in producers.open_transactions.items()
        }
        if found:
            self._decisions.check_open((name, replica.index), found, _stored_end(replica))

    def _look_at(self, replica: Any) -> None:
        place, log = (replica.topic, replica.index), replica.log
        tracked = self._tracked.get(place)
        if tracked is None or tracked.log is not log:
            tracked = self._tracked[place] = TrackedLog(
                self._judge, self._coordinated.log_of(place), log, f"life of {self._judge.incarnation}"
            )
        tracked.look()
        if tracked.commit(_stored_end(replica), replica.leader_epoch) and place[0] == TRANSACTION_STATE:
            stored = SimpleNamespace(index=replica.index, log=log, high_watermark=_stored_end(replica))
            self._decisions.read_on(stored)
            self._known_ids.committed(replica.index)
        if log.may_have_transactions:
            may_be = tracked.transactions.may_be(replica.high_watermark, log.log_start_offset)
            if replica.last_stable_offset not in may_be:
                how = f"{place} is stable up to {replica.last_stable_offset}, by its log up to {may_be[0]}"
                self._judge.violated("I-29", how)
            self._judge.counts["stable offsets checked"] += may_be[0] < replica.high_watermark


def _stored_end(replica: Any) -> int:
    """What no loss of power takes away, where the log waits for the disk."""
    log = replica.log
    waits_for_disk = log.flushed_offset < log.sync_required_offset
    return int(min(replica.high_watermark, log.flushed_offset) if waits_for_disk else replica.high_watermark)
