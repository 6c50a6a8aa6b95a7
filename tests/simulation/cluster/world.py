"""One run of a whole cluster: three brokers, the metadata store, clients, and what befalls them, all from one seed.

For a while everything goes wrong that may. Then faults stop, and the cluster has to come to rest: every partition has a
leader and all its replicas in sync, every producer gets its last batch acknowledged, every group is stable (I-20). At
the end all replicas are compared (R12), what clients were answered is held against what is stored, and what is left in
the brokers is counted (I-19).
"""

import asyncio
import contextlib
import random
import traceback
from collections.abc import Awaitable, Coroutine
from typing import Any

from ottla.broker.broker import StartError
from ottla.cluster.image import CONSUMER_OFFSETS, MetadataImage, ScramUser
from ottla.cluster.updates import ImageUpdate
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.security.quotas import QuotaEntity
from ottla.security.scram_credential import ScramCredential
from tests.histories.events import Event
from tests.simulation.calm import Calm, wait_for_all
from tests.simulation.cluster.admin import GROWING, risked_topic
from tests.simulation.cluster.altered import Book
from tests.simulation.cluster.client import PASSING, REQUEST_TIMEOUT_MS, ClusterWire, Partition
from tests.simulation.cluster.clients import spawn_clients
from tests.simulation.cluster.faults import CALM_STORE, KINDS, LATER_KINDS, LATEST_KINDS, LONGEST_STALL_MS, Faults
from tests.simulation.cluster.inspector import ClusterInspector
from tests.simulation.cluster.judge import ClusterJudge
from tests.simulation.cluster.keyed import KeyedProducer, keyed_topic
from tests.simulation.cluster.newcomer import WANTED, Newcomer
from tests.simulation.cluster.node import Node
from tests.simulation.cluster.obedience import Obedience
from tests.simulation.cluster.plan import NODE_IDS, ClusterPlan, draw_conditions
from tests.simulation.cluster.principals.principals import Principals
from tests.simulation.cluster.producing import IdempotentProducer
from tests.simulation.cluster.rest import Rest
from tests.simulation.cluster.risked import RISKED
from tests.simulation.cluster.settings_admin import SettingsAdmin
from tests.simulation.cluster.settings_probe import probed_topic
from tests.simulation.cluster.slow_reading import little_memory
from tests.simulation.cluster.small_epochs import small_epochs
from tests.simulation.cluster.store import StoreMachine
from tests.simulation.cluster.transacting import PARTITIONS, Transactor, transactions_topic
from tests.simulation.cluster.transacting import TOPIC as PAYMENTS
from tests.simulation.cluster.truth import Truth
from tests.simulation.draws import randint
from tests.simulation.judge import static_id_of
from tests.simulation.loop import PROCESS, NothingLeftToDo, Process, SimulationLoop, described
from tests.simulation.member import PROMPT_MS, Member
from tests.simulation.network import SimulatedNetwork
from tests.simulation.offloaded import Suspensions
from tests.simulation.slices import slices_of_one
from tests.simulation.trace import Trace
from tests.simulation.transaction_book import TransactionBook
from tests.simulation.wire import Wire, connect
from tests.simulation.world import Outcome, Violated

# Worlds take 25,000 as a rule; one with slow readers, fetches of 200 bytes and a long storm has taken 300,662.
STEPS_MAX = 600_000
BUSY_MS = 20
SLOW_DISK_FACTOR = 40


class ClusterWorld:
    coordinators_move = True

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.suspensions = Suspensions.draw(self.make_rng("suspended work"))
        self.loop = SimulationLoop(
            executor_delay_us=self._thread_delay_us,
            executor_return_us=self._thread_return_us,
            suspensions=self.suspensions,
        )
        self.trace = Trace(lambda: self.loop.now_us, keep=keep_trace)
        self.judge = ClusterJudge(self.trace)
        self.judge.serves = self.serves
        self.plan = ClusterPlan.draw(self.make_rng("plan"), KINDS, LATER_KINDS, LATEST_KINDS)
        self.plan.draw_more(self.make_rng)
        self.network = SimulatedNetwork(self.loop, self.make_rng("network"), self.trace)
        self.network.draw_conditions = draw_conditions
        self.topics = ["alpha", "beta"]
        self.partitions: list[Partition] = [("alpha", 0), ("alpha", 1), ("beta", 0)]
        self.calm = Calm()
        self.is_over = self.writing_is_over = False
        self.history: list[Event] = []
        self.members: list[Member] = []
        self.producers: list[IdempotentProducer] = []
        self.keyed_producer: KeyedProducer | None = None
        loses_records = self.plan.compacts or self.plan.deletes_transactions
        self.book = TransactionBook(self.judge, list(PARTITIONS), loses_records=loses_records)
        self.transactors: list[Transactor] = []
        self.newcomer: Newcomer | None = None
        self.client_hosts: list[str] = []
        self.nodes_of_processes: dict[Process, Node] = {}
        self._keep_trace = keep_trace
        self._thread_rng, self._return_rng = self.make_rng("threads"), self.make_rng("returns of threads")
        self._client_rng = self.make_rng("clients")
        self._commits = self._calm_since_us = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self.store_machine = self._new_store()
        self.users: Book[ScramUser, ScramCredential] = Book()
        self.quotas: Book[QuotaEntity, dict[str, float]] = Book()
        self.truth = Truth(self.judge, self.store_machine.store)
        self.truth.when_changed.append(self._maybe_grow)
        self.inspector = self._new_inspector()
        self.principals = Principals(self) if self.plan.has_principals else None
        self.settings = SettingsAdmin(self) if self.plan.alters_settings else None
        self.nodes = {node_id: Node(self, node_id, self.plan.settings_of(node_id)) for node_id in NODE_IDS}
        self.book.undecided_in = self.undecided_in
        self.bootstrap = {node_id: node.address for node_id, node in self.nodes.items()}

    def _new_inspector(self) -> ClusterInspector:
        keeps_producers = not self.plan.expires_producers and "clock" not in self.plan.faults
        return ClusterInspector(
            self.judge,
            self.truth,
            compacts=self.plan.compacts,
            transacts=self.plan.transacts,
            keeps_producers=keeps_producers,
            obedience=Obedience(self.judge, self.truth, self.plan.settings()) if self.plan.alters_settings else None,
        )

    def _new_store(self) -> StoreMachine:
        with contextlib.ExitStack() as stack:
            stack.callback(asyncio._set_running_loop, None)
            asyncio._set_running_loop(self.loop)
            return StoreMachine(self.loop, self.network.links, self.make_rng("store"), self.trace)

    @property
    def subscribed(self) -> list[str]:
        """The topics of members: where offsets expire also those that are still to be made, because they expire in a
        Stable group too when none of its members is subscribed to their topic (docs/semantics §9.7)."""
        return [*dict.fromkeys([*self.topics, *WANTED])] if self.plan.expires_offsets else self.topics

    def run(self) -> Outcome:
        self.loop.after_step = self._after_step
        self.loop.on_crash = self._crashed
        # A client's own timeout comes on top of what the broker may take.
        self.judge.network_allowance_ms = 2 * LONGEST_STALL_MS
        try:
            of_groups = self.make_rng("slices").random() < 0.3
            of_fetches = self.make_rng("long fetches").random() < 0.15
            of_producers = self.make_rng("packed producers").random() < 0.2
            slices = slices_of_one(of_groups=of_groups, of_fetches=of_fetches, of_producers=of_producers)
            memory, locks = little_memory(self.plan.holds_little), self.suspensions.locks()
            with slices, small_epochs(self.plan.has_small_epochs), memory, locks:
                self.loop.run_until_complete(self._story())
        except Violated:
            pass
        except NothingLeftToDo as nothing:
            self.judge.violated("liveness", str(nothing))
        except Exception:
            # One seed's trouble is not to keep the others from being run.
            self.judge.violated("exceptions", traceback.format_exc())
        for failure in self.loop.failures:
            self.judge.violated("exceptions", described(failure))
        outcome = Outcome(
            self.seed,
            self.trace.digest(),
            self.judge.violations,
            {**self.judge.counts, **self.suspensions.counts},
            self.loop.steps,
            self.loop.now_us // 1000,
            self.trace.lines() if self._keep_trace else [],
        )
        self.loop.close()
        return outcome

    # What clients ask.

    @property
    def now_us(self) -> int:
        return self.loop.now_us

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.loop.now_us // 1000

    def serves(self, wire: Any) -> bool:
        node = self.nodes_of_processes.get(process_behind(wire))
        return node is None or node.broker.is_serving

    @property
    def is_calm(self) -> bool:
        return self.calm.is_set()

    @property
    def has_been_calm_for_ms(self) -> int:
        return (self.loop.now_us - self._calm_since_us) // 1000 if self.is_calm else 0

    @property
    def join_bound_ms(self) -> int:
        """How long a join or a sync may be parked: one join phase, or one wait for the leader's assignment."""
        longest_ms = max(member.habits.group_rebalance_timeout_ms for member in self.members)
        return max(longest_ms, self.plan.initial_rebalance_delay_ms) + PROMPT_MS

    def record(self, event: Event) -> None:
        self.history.append(event)

    def judge_error(self, error: ErrorCode, what: str) -> None:
        if error is ErrorCode.CORRUPT_MESSAGE and self.has_rotten_disk:
            self.judge.counts["damage found"] += 1
        elif error not in PASSING and not self.may_refuse(error):
            self.judge.violated("answers", f"{what} was answered {error.name}")

    def may_refuse(self, error: ErrorCode) -> bool:
        """What clients ask for, to whom nothing of it is said in this world."""
        is_of_settings = self.settings is not None and self.settings.may_refuse(error)
        return is_of_settings or (self.plan.uses_topic_ids and error is ErrorCode.UNKNOWN_TOPIC_ID)

    def check_is_committed(
        self, partition: Partition, end_offset: int, values: list[str], sequence: tuple[int, int, int] | None
    ) -> None:
        """I-4, at the moment at which a client learns of it. `sequence`: producer id, epoch and first sequence."""
        if self.truth.image.topic(partition[0]) is None:
            return
        committed = self.inspector.committed_now(partition)
        if committed is None or max(committed.end_offset, committed.unread_end_offset) < end_offset:
            self.judge.violated("I-4", f"{partition}: {values} acknowledged below {end_offset}, beyond {committed}")
        elif sequence is not None and sequence not in committed.sequences and not committed.unread_end_offset:
            # Where its offset lies below the log start, nothing else could show that.
            self.judge.violated("I-4", f"{partition}: {values} acknowledged below {end_offset}, where others were")

    def committed_end(self, partition: Partition) -> int:
        """What was below a leader's high watermark, so far."""
        committed = self.inspector.committed_now(partition)
        return 0 if committed is None else committed.end_offset

    def deleted_before(self, partition: Partition) -> int:
        """The highest log start offset that any replica has had."""
        committed = self.inspector.committed_now(partition)
        return 0 if committed is None else committed.start_offset

    def undecided_in(self, partition: Partition) -> set[int]:
        """Offsets of records whose transaction's marker expired before some replica had it."""
        committed = self.inspector.committed_now(partition)
        return set() if committed is None else committed.undecided

    async def connect(self, client_id: str) -> ClusterWire:
        return await self.connect_to(self._client_rng.choice(list(self.bootstrap.values())), client_id)

    async def connect_to(self, address: tuple[str, int], client_id: str) -> ClusterWire:
        """Raises OSError where no broker is to be reached."""
        wire = await connect(self.network, self.judge, address, client_id, WorldsWire)
        wire.world = self
        return wire

    def process_behind(self, wire: Wire) -> Process:
        """The broker at the other end."""
        return process_behind(wire)

    async def coordinator(self, found: Any, wire: Wire, client_id: str) -> Wire:
        wire.close()
        return await self.connect_to((found.host, found.port), client_id)

    def authority_of(self, group_id: str, wire: Wire) -> Any:
        """Of the broker that leads the group's partition by what is committed; None where it is not this one."""
        node = self.nodes_of_processes.get(process_behind(wire))
        topic = self.truth.image.topic(CONSUMER_OFFSETS)
        if node is None or topic is None:
            return None
        state = topic.partitions[partition_for(group_id, len(topic.partitions))]
        return (state.leader, state.leader_epoch, wire.incarnation) if state.leader == node.node_id else None

    def term_of(self, process: Process) -> int:
        node = self.nodes_of_processes.get(process)
        return -1 if node is None or node.inspector is None else node.inspector.term

    def next_commit(self) -> int:
        self._commits += 1
        return self._commits

    def static_id_of(self, member_id: str) -> str:
        return static_id_of(member_id)

    async def sleep_ms(self, duration_ms: int) -> None:
        """Calm ends every sleep that began before it."""
        await self.calm.sleep_ms(duration_ms)

    # What nodes and faults ask.

    def make_rng(self, purpose: str) -> random.Random:
        return random.Random(f"cluster {self.seed}/{purpose}")

    def spawn(self, life: Awaitable[None], name: str) -> "asyncio.Task[None]":
        assert isinstance(life, Coroutine), "a task runs a coroutine"
        task = self.loop.create_task(life, name=name)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)
        return task

    def spawn_client(self, client_id: str, life: Awaitable[None]) -> None:
        self.client_hosts.append(client_id)
        self.spawn(life, client_id)

    def start_failed(self, node: Node, error: StartError) -> None:
        self.trace.note("start failed", node.host, error)
        if self.has_been_calm_for_ms > 10_000:
            self.judge.violated("start", f"{node.host}: {error}")

    def may_lose_power(self, node: Node) -> bool:
        """One at a time, and only while others have all that was acknowledged: more is not promised (§14.8.2)."""
        return not node.has_rotten_disk and self.may_lose_disk(node)

    def may_lose_disk(self, node: Node) -> bool:
        if self.plan.min_isr < 2:
            # Nothing keeps such an ISR from shrinking to the one that has just lost its records.
            return False
        if any(other.is_unwell for other in self.nodes.values() if other is not node):
            return False
        return all(
            (set(state.isr) | set(state.elr)) - {node.node_id} or node.node_id not in state.replicas
            for topic, _, state in self.truth.image.partitions()
            if topic.name != RISKED
        )

    def may_be_left_to(self, partition: Partition, replicas: list[int] | None) -> bool:
        """Whether one of these has all that was acknowledged; None: of those without a reassignment. A broker that has
        lost power may be in the ISR until the others know that: who takes the rest away loses records, in Kafka too."""
        state = self.truth.partition(*partition)
        if state is None:
            return True
        stay = set(state.replicas).difference(state.adding) if replicas is None else set(replicas)
        have_all = {node_id for node_id in (*state.isr, *state.elr) if not self.nodes[node_id].is_unwell}
        return not have_all or not have_all.isdisjoint(stay)

    @property
    def has_rotten_disk(self) -> bool:
        return any(node.has_rotten_disk for node in self.nodes.values())

    def is_in_sync(self) -> bool:
        return all(set(state.isr) == set(state.replicas) for _, _, state in self.truth.image.partitions())

    def calm_down(self) -> None:
        self.trace.note("calm")
        self._calm_since_us = self.loop.now_us
        self.network.links.heal_all()
        self.store_machine.conditions = CALM_STORE
        for node in self.nodes.values():
            node.disk.put_out_fuse()
            node.is_slow = node.disk.is_cold = False
        self.calm.set()

    # The story.

    async def _story(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        await self._create_topics()
        if self.principals is not None:
            await self.principals.begin()
        spawn_clients(self)
        await Faults(self, self.make_rng("faults")).storm()
        rest = self.rest = Rest(self)
        await rest.come()
        self.writing_is_over = True
        await rest.finish_transactions()
        await rest.finish_writing()
        await rest.judge_groups()
        await rest.see_offsets_expire()
        await rest.see_producers_expire()
        self.is_over = True
        await wait_for_all(self._tasks)
        await rest.judge_history()
        await rest.judge_deeds()
        await rest.judge_settings()
        await rest.clean_up()

    async def _create_topics(self) -> None:
        counts = {topic: sum(each == topic for each, _ in self.partitions) for topic in self.topics}
        topics = [CreatableTopic(name=topic, num_partitions=n, replication_factor=3) for topic, n in counts.items()]
        topics += [keyed_topic()] if self.plan.writes_keys else []
        topics += [transactions_topic(self.plan)] if self.plan.transacts else []
        topics += [risked_topic()] if "risk" in self.plan.faults else []
        topics += [probed_topic()] if self.plan.alters_settings else []
        errors = {"not asked yet"}
        while errors - {"NONE", "TOPIC_ALREADY_EXISTS"}:
            wire = await self.connect("admin")
            request = CreateTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
            response = await wire.call(request, 7, within_ms=REQUEST_TIMEOUT_MS)
            wire.close()
            errors = {ErrorCode(topic.error_code).name for topic in response.topics}
            # Replicas are placed on brokers that are known to be active.
            if errors - {"NONE", "TOPIC_ALREADY_EXISTS", "INVALID_REPLICATION_FACTOR"}:
                self.judge.violated("answers", f"create topics was answered {errors}")
            await asyncio.sleep(0.05)

    def _maybe_grow(self, _: MetadataImage, update: ImageUpdate) -> None:
        """Clients write to new partitions, and read them, from the moment at which these are committed."""
        for name in (GROWING, *WANTED):
            topic = update.image.topic(name) if name in update.topics else None
            if topic is not None and name not in self.topics:
                self.topics.append(name)
            for index in range(0 if topic is None else len(topic.partitions)):
                if (name, index) not in self.partitions:
                    self.partitions.append((name, index))
        paid = update.image.topic(PAYMENTS) if PAYMENTS in update.topics else None
        for index in range(0 if paid is None else len(paid.partitions)):
            if (PAYMENTS, index) not in self.book.partitions:
                self.book.partitions.append((PAYMENTS, index))

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        error = task.exception()
        if error is not None:
            self.judge.violated(task.get_name(), "".join(traceback.format_exception(error)))

    # Hooks.

    def _after_step(self, process: Process | None) -> None:
        if process is not None:
            node = self.nodes_of_processes.get(process)
            if node is not None:
                node.look()
        if self.judge.violations or self.loop.failures:
            raise Violated
        if self.loop.steps > STEPS_MAX:
            self.judge.violated("liveness", f"more than {STEPS_MAX} steps")

    def _crashed(self, process: Process) -> None:
        self.judge.counts["crash within an operation"] += 1
        self.nodes_of_processes[process].kill()

    def _thread_delay_us(self) -> int:
        process = PROCESS.get()
        node = None if process is None else self.nodes_of_processes.get(process)
        factor = SLOW_DISK_FACTOR if node is not None and node.is_slow else 1
        return factor * randint(self._thread_rng, 10, 5_000)

    def _thread_return_us(self) -> int:
        """Mostly at once; sometimes much happens in between."""
        rng = self._return_rng
        return rng.choice([0, 0, randint(rng, 1, 2_000), randint(rng, 1, 50_000)])


class WorldsWire(ClusterWire):
    @property
    def incarnation(self) -> int:
        return self.world.term_of(process_behind(self))


def process_behind(wire: Wire) -> Process:
    process = wire.transport.peer.context.get(PROCESS)
    assert process is not None, "brokers are processes"
    return process
