"""What must hold inside the brokers after every step, and between them (I-1 to I-8, I-25).

Partitions are looked at when something about them has changed, and only those of the broker that has just run.
"""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE, MetadataImage
from ottla.cluster.updates import ImageUpdate
from ottla.coordinator.runtime.partition import Phase
from ottla.protocol.errors import CorruptMessage
from tests.simulation.cluster import transaction_agreement as agreement
from tests.simulation.cluster.compacted import CompactedLog
from tests.simulation.cluster.decided import DecidedLog
from tests.simulation.cluster.decisions import Decisions, OpenTransaction
from tests.simulation.cluster.judge import ClusterJudge
from tests.simulation.cluster.known_ids import KnownIds
from tests.simulation.cluster.obedience import Obedience
from tests.simulation.cluster.plan import LONGEST_PAUSE_MS
from tests.simulation.cluster.replicas import Committed, TrackedLog
from tests.simulation.cluster.risked import RiskedLog
from tests.simulation.cluster.truth import Truth
from tests.simulation.invariants import Inspector, hosted_partitions
from tests.simulation.replay import differences, live_state, replayed

PartitionId = tuple[bytes, int]
COMMITS_PER_COMPARISON = 10


class ClusterInspector:
    """Of the whole cluster, for the whole run."""

    def __init__(
        self,
        judge: ClusterJudge,
        truth: Truth,
        *,
        compacts: bool,
        transacts: bool,
        keeps_producers: bool = True,
        obedience: Obedience | None = None,
    ) -> None:
        """`keeps_producers`: none of them expires. `obedience`: where settings are altered in flight."""
        self.judge = judge
        self.keeps_producers = keeps_producers
        self.obedience = obedience
        self.compacts = compacts
        self.compacted_kind = DecidedLog if transacts else CompactedLog
        self.truth = truth
        self.committed: dict[PartitionId, Committed] = {}
        # By topic id: what a topic was made for it stays, whatever its configs are in between.
        self._made_with: dict[bytes, Mapping[str, str]] = {}
        self.decisions = Decisions(judge, self._committed_end)
        # The lives that go on, by broker id.
        self.lives: dict[int, BrokerInspector] = {}
        self._leaders: dict[tuple[PartitionId, int], int] = {}
        truth.when_changed.append(self._isr_changed)

    def began(self, node_id: int, broker: Any, is_rotten: Callable[[], bool]) -> "BrokerInspector":
        self.lives[node_id] = BrokerInspector(self, node_id, broker, is_rotten)
        return self.lives[node_id]

    def ended(self, node_id: int) -> None:
        life = self.lives.pop(node_id, None)
        if life is not None:
            life.ended()

    def committed_of(self, key: PartitionId, topic: str) -> Committed:
        if key not in self.committed:
            self.committed[key] = Committed(f"{topic}-{key[1]}")
            self.committed[key].control_batch_came = partial(self.decisions.marker_came, (topic, key[1]))
        return self.committed[key]

    def _committed_end(self, partition: tuple[str, int]) -> int:
        committed = self.committed_now(partition)
        return 0 if committed is None else committed.end_offset

    def committed_now(self, partition: tuple[str, int]) -> Committed | None:
        """Of the topic that has the name now."""
        topic = self.truth.image.topic(partition[0])
        return None if topic is None else self.committed.get((topic.topic_id, partition[1]))

    def leads(self, key: PartitionId, name: str, node_id: int, leader_epoch: int) -> None:
        leader = self._leaders.setdefault((key, leader_epoch), node_id)
        if leader != node_id:
            self.judge.violated("I-1", f"{name}: {leader} and {node_id} lead in epoch {leader_epoch}")

    def check_isr(self, name: str, index: int) -> None:
        """I-3: what is committed is on every member of the committed ISR, as far as it is there to be asked."""
        topic = self.truth.image.topic(name)
        if topic is None or index >= len(topic.partitions):
            return
        for node_id in topic.partitions[index].isr:
            life = self.lives.get(node_id)
            if life is not None and life.is_registered:
                life.check_has_committed((topic.topic_id, index))

    def kind_of(self, topic_id: bytes) -> type[TrackedLog]:
        configs = self._made_with.get(topic_id, {})
        if configs.get("unclean.leader.election.enable") == "true":
            return RiskedLog
        return self.compacted_kind if self.compacts and configs.get("cleanup.policy") == "compact" else TrackedLog

    def _isr_changed(self, before: MetadataImage, update: ImageUpdate) -> None:
        for name, indexes in update.topics.items():
            topic = update.image.topic(name)
            if topic is not None:
                self._made_with.setdefault(topic.topic_id, topic.configs)
            for index in indexes:
                self.check_isr(name, index)


class BrokerInspector:
    """Of one life of a broker."""

    def __init__(self, cluster: ClusterInspector, node_id: int, broker: Any, is_rotten: Callable[[], bool]) -> None:
        self._is_rotten = is_rotten
        self._cluster = cluster
        self._judge = cluster.judge
        self._node_id = node_id
        self._broker = broker
        self._seen: dict[Any, tuple[Any, ...]] = {}
        self._logs: dict[PartitionId, TrackedLog] = {}
        # Where the last segment begins.
        self._active: dict[PartitionId, int] = {}
        self._terms: dict[PartitionId, tuple[int, int, int]] = {}
        self._terms_checked: dict[PartitionId, int] = {}
        self._offsets_terms: dict[PartitionId, tuple[int, bool]] = {}
        self._image: MetadataImage | None = None
        self.when_image_changes: Callable[[MetadataImage], None] = lambda _: None
        # Those of the broker by topic and index, as soon as it has any.
        self._partitions: dict[str, dict[int, Any]] | None = None
        self._groups = Inspector(self._judge, broker, LONGEST_PAUSE_MS + 1_000)
        self._loaded: set[int] = set()
        self._known_ids = KnownIds(self._judge, cluster.decisions, broker, f"broker {node_id}")
        self._commits_of_transactions = 0
        # Of this step: the broker leads them, and they may have transactions.
        self._with_transactions: list[Any] = []
        # Names the present set of partitions of `__consumer_offsets` that the broker leads, and for how long.
        self.term = self._judge.begin_term(before=-1)

    @property
    def is_registered(self) -> bool:
        """This very life, with nothing lost that the cluster does not know of yet."""
        known = self._cluster.truth.image.brokers.get(self._node_id)
        if known is None or not hasattr(self._broker, "lifecycle"):
            return False
        registered = self._broker.lifecycle.broker_epoch == known.epoch
        return registered and not known.lost_data

    def look(self) -> None:
        """After each step of the broker."""
        broker = self._broker
        if self._partitions is None:
            if not hasattr(broker, "replicas") or not hasattr(broker, "metadata"):
                return
            self._partitions = broker.replicas._partitions
        seen = self._seen
        for of_topic in self._partitions.values():
            for partition in of_topic.values():
                # The fields themselves: this is done more often than anything else in a run.
                log = partition.log._local
                state = (
                    log.log_end_offset,
                    partition.high_watermark,
                    log.log_start_offset,
                    log.truncations,
                    partition.partition_epoch,
                    partition.leader_epoch,
                    partition.leader_id,
                )
                if seen.get(partition) != state:
                    seen[partition] = state
                    self._look_at(partition)
        self._look_at_decisions()
        self._known_ids.look()
        image = broker.metadata.image
        if image is not self._image:
            self._image = image
            self._cluster.truth.compare(f"broker {self._node_id}", image)
            if self._cluster.obedience is not None:
                self._cluster.obedience.check_logs(f"broker {self._node_id}", broker)
            self.when_image_changes(image)
        if broker.runtime.is_serving and hasattr(broker, "server"):
            hosted = hosted_partitions(broker)
            if hosted:
                self._groups.look_at_groups(hosted)
                self._look_at_loaded(hosted)

    def ended(self) -> None:
        self._judge.ended.add(self.term)

    def check_has_committed(self, key: PartitionId) -> None:
        tracked = self._logs.get(key)
        self._judge.counts["in-sync replicas checked"] += 1
        if tracked is not None and tracked.lacks_committed():
            committed = self._cluster.committed[key].end_offset
            tracked.violated("I-3", f"in the ISR without what was committed up to {committed}")

    def note_last_step(self) -> None:
        """The broker dies, perhaps in the middle of a step: what it has answered in it holds."""
        for tracked in self._logs.values():
            tracked.note_deletions()
        for partition in self._broker.replicas if self._partitions is not None else ():
            key = (partition.topic_id, partition.index)
            tracked, high_watermark = self._logs.get(key), partition.high_watermark
            if not partition.is_leader or tracked is None or tracked.log is not partition.log:
                continue
            if high_watermark <= tracked.end_offset and tracked.commit(high_watermark, partition.leader_epoch):
                self._committed(partition, key)

    def tracked(self, key: PartitionId) -> TrackedLog | None:
        return self._logs.get(key)

    def _committed(self, partition: Any, key: PartitionId) -> None:
        self._cluster.check_isr(partition.topic, partition.index)
        if partition.topic == TRANSACTION_STATE:
            self._cluster.decisions.read_on(partition)
            self._known_ids.committed(partition.index)
        elif partition.log.may_have_transactions:
            self._compare_now_and_then(partition, key)

    def _look_at_commits(self, partition: Any) -> None:
        obedience = self._cluster.obedience
        if obedience is not None and self._broker.metadata.image is self._image:
            obedience.check_commits(f"broker {self._node_id}", self._broker, partition)
        elif obedience is not None:
            obedience.note_leader(partition)

    def _look_at(self, partition: Any) -> None:
        log, key = partition.log, (partition.topic_id, partition.index)
        name = f"{partition.topic}-{partition.index}"
        where = f"{name} on {self._node_id}"
        if not log.log_start_offset <= partition.high_watermark <= log.log_end_offset:
            ends = f"{log.log_start_offset} ≤ {partition.high_watermark} ≤ {log.log_end_offset}"
            self._judge.violated("I-6", f"{where}: {ends} does not hold")
        tracked = self._logs.get(key)
        if tracked is None or tracked.log is not log:
            # The first, or another one after it was moved away and back.
            self._terms.pop(key, None)
            committed = self._cluster.committed_of(key, partition.topic)
            tracked = self._logs[key] = self._cluster.kind_of(partition.topic_id)(
                self._judge, committed, log, f"broker {self._node_id}", self._is_rotten
            )
            self._active.pop(key, None)
        tracked.look(self._spared_in(partition))
        base_offset = log._local.active.base_offset
        self._judge.counts["rolls"] += base_offset > self._active.get(key, base_offset)
        self._active[key] = base_offset
        self._look_at_epochs(partition, key, where)
        if log.may_have_transactions:
            self._look_at_stable_offset(partition, tracked, where)
        if partition.topic == CONSUMER_OFFSETS and self._offsets_terms.get(key) != (
            partition.leader_epoch,
            partition.is_leader,
        ):
            self._offsets_terms[key] = partition.leader_epoch, partition.is_leader
            self._begin_term(partition.index)
        if partition.is_leader:
            self._cluster.leads(key, name, self._node_id, partition.leader_epoch)
            self._look_at_commits(partition)
            if self.is_registered and self._terms_checked.get(key) != partition.leader_epoch:
                self._terms_checked[key] = partition.leader_epoch
                self._judge.counts["new leaders checked"] += 1
                tracked.check_leads_with_committed(partition.leader_epoch)
            if tracked.commit(partition.high_watermark, partition.leader_epoch):
                self._committed(partition, key)
            if log.may_have_transactions:
                self._with_transactions.append(partition)

    def _spared_in(self, partition: Any) -> int | None:
        """The leader epoch that a replica goes by which is neither in the ISR nor in the ELR."""
        state = self._cluster.truth.partition(partition.topic, partition.index)
        is_counted_on = state is None or self._node_id in (*state.isr, *state.elr)
        return None if is_counted_on else partition.leader_epoch

    def _look_at_decisions(self) -> None:
        """I-31 and I-35 to I-38. A leader that was replaced may keep open what the next one has ended, and one that has
        lost its log need not know it yet."""
        decisions = self._cluster.decisions
        self._known_ids.note_deleted()
        decisions.end_step()
        leading = self._with_transactions if self._with_transactions and self.is_registered else ()
        for partition in leading:
            state = self._cluster.truth.partition(partition.topic, partition.index)
            if state is None or (state.leader, state.leader_epoch) != (self._node_id, partition.leader_epoch):
                continue
            committed = self._cluster.committed[partition.topic_id, partition.index]
            producers = partition.log.known_producers
            if producers is None:
                continue
            known = {
                producer_id: OpenTransaction(offset, producers.states[producer_id].epoch)
                for producer_id, offset in producers.open_transactions.items()
                if offset not in committed.undecided
            }
            decisions.check_open((partition.topic, partition.index), known, partition.high_watermark)
        self._with_transactions.clear()

    def _compare_now_and_then(self, partition: Any, key: PartitionId) -> None:
        """I-32, of the replicas in sync that have just the same. Expired producers are gone in one before another."""
        self._commits_of_transactions += 1
        if not self._cluster.keeps_producers or self._commits_of_transactions % COMMITS_PER_COMPARISON:
            return
        state = self._cluster.truth.partition(partition.topic, partition.index)
        if state is None or state.leader != self._node_id:
            return
        here, logs = self._logs[key], {}
        if type(here) is not TrackedLog:
            # What is compacted leaves out one thing here and another there.
            return
        for node_id in state.isr:
            life = self._cluster.lives.get(node_id)
            tracked = None if life is None or life._is_rotten() else life.tracked(key)
            if tracked is not None and tracked.has_the_same(here) and tracked.log.known_producers is not None:
                logs[node_id] = tracked.log
        if partition.log.known_producers is None:
            return
        with contextlib.ExitStack() as stack:
            for log in (partition.log, *logs.values()):
                stack.enter_context(log.files.nothing_fails())
            found = agreement.differences(logs) + agreement.differences_from_log(partition.log)
        for difference in found:
            self._judge.violated("I-32", f"{partition.topic}-{partition.index}: {difference}")
        self._judge.counts["replicas compared on the way"] += len(logs)

    def _look_at_stable_offset(self, partition: Any, tracked: TrackedLog, where: str) -> None:
        """I-29. Compaction leaves markers out. What the broker does not know is not read for it: its own reading of it
        may fail."""
        if partition.log.known_producers is None:
            return
        if type(tracked) is not TrackedLog or self._is_rotten() or tracked.end_offset != partition.log.log_end_offset:
            return
        may_be = tracked.transactions.may_be(partition.high_watermark, partition.log.log_start_offset)
        if partition.last_stable_offset not in may_be:
            how = f"stable up to {partition.last_stable_offset}, by its log up to {may_be[0]}"
            self._judge.violated("I-29", f"{where}: {how}")
        self._judge.counts["stable offsets checked"] += may_be[0] < partition.high_watermark

    def _begin_term(self, index: int) -> None:
        self.term = self._judge.begin_term(before=self.term)
        self._groups = Inspector(self._judge, self._broker, LONGEST_PAUSE_MS + 1_000)
        self._loaded.discard(index)

    def _look_at_loaded(self, partitions: list[Any]) -> None:
        """I-17: a coordinator that has just loaded knows what its log says. One that could not will load again."""
        for hosted in partitions:
            if hosted.index in self._loaded or hosted.coordinator.phase is not Phase.ACTIVE:
                continue
            self._loaded.add(hosted.index)
            try:
                found = self._not_loaded(hosted)
            except CorruptMessage as error:
                # The rot came after the load, or ended it.
                found = [] if self._is_rotten() else [str(error)]
            for difference in found:
                self._judge.violated("I-17", f"broker {self._node_id} has loaded {hosted.index}: {difference}")

    def _not_loaded(self, hosted: Any) -> list[str]:
        """A marker that came in the same step counts when it is committed, and not before."""
        partition = self._broker.replicas.partition(CONSUMER_OFFSETS, hosted.index)
        ends = (partition.log.log_end_offset, max(partition.high_watermark, partition.leader_epoch_start))
        found: list[str] = []
        for end_offset in ends:
            found = differences(live_state(hosted), replayed(self._broker, hosted.index, end_offset))
            if not found:
                break
        return found

    def _look_at_epochs(self, partition: Any, key: PartitionId, where: str) -> None:
        """I-5 and I-8, for what this life has received."""
        leader_epoch, partition_epoch, high_watermark = self._terms.get(key, (-1, -1, 0))
        if partition.leader_epoch < leader_epoch or partition.partition_epoch < partition_epoch:
            self._judge.violated(
                "I-8", f"{where}: epochs fell to {partition.leader_epoch}, {partition.partition_epoch}"
            )
        if partition.is_leader and partition.leader_epoch == leader_epoch and partition.high_watermark < high_watermark:
            self._judge.violated("I-5", f"{where}: the high watermark fell from {high_watermark} within a term")
        self._terms[key] = (partition.leader_epoch, partition.partition_epoch, partition.high_watermark)
