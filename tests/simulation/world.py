"""One run: a broker, its clients, and what befalls them, all from one seed.

For a while everything goes wrong that may: connections break and stall, members behave badly, the broker is stopped,
killed, or loses power. Then faults stop, and the world has to come to rest (I-20). At the end everybody goes home, and
what is left in the broker is counted.
"""

import asyncio
import contextlib
import random
import traceback
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.runtime import StartError
from ottla.coordinator.classic.states import STABLE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.simulation.broker_process import BrokerProcess, Machine
from tests.simulation.calm import Calm, wait_for_all, wrong_after
from tests.simulation.commits import fetch_request, metadata_of, read_offsets
from tests.simulation.coordinated import Coordinated, TransactionInspector
from tests.simulation.invariants import Inspector, hosted_partitions, timers_of_groups
from tests.simulation.judge import Judge, static_id_of
from tests.simulation.loop import Crash, NothingLeftToDo, Process, SimulationLoop, VirtualClock
from tests.simulation.member import PROMPT_MS, Habits, Member
from tests.simulation.network import SimulatedNetwork
from tests.simulation.offloaded import Suspensions
from tests.simulation.plan import RETENTION_MINUTES, Plan
from tests.simulation.replay import LoadCheck, differences, live_states, replayed
from tests.simulation.scraping import Scraper
from tests.simulation.slices import slices_of_one
from tests.simulation.trace import Trace
from tests.simulation.traffic import Producer, Reader, Traffic
from tests.simulation.wire import Wire, connect

ADDRESS = ("broker", 9092)
LONGEST_STALL_MS = 8_000
# Finding the coordinator again, joining again, and a heartbeat to learn that one must: while the world is calm.
REACTION_MS = 6_000
STEPS_MAX = 2_000_000
EXPIRY_CHECK_MINUTES = 10


@dataclass
class Outcome:
    seed: int
    digest: str
    violations: list[str]
    counts: dict[str, int]
    steps: int
    virtual_ms: int
    lines: list[str] = field(default_factory=list)


class World:
    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.suspensions = Suspensions.draw(self._rng("suspended work"))
        self.loop = SimulationLoop(executor_delay_us=self._thread_delay_us, suspensions=self.suspensions)
        self.clock = VirtualClock(self.loop)
        self.trace = Trace(lambda: self.loop.now_us, keep=keep_trace)
        self.judge = Judge(self.trace)
        self.plan = self.draw_plan(self._rng("plan"))
        self.network = SimulatedNetwork(self.loop, self._rng("network"), self.trace)
        self.topics = self.subscribed = ["alpha", "beta"]
        self.partitions = [(topic, index) for topic in self.topics for index in range(2)]
        self.traffic = Traffic(self)
        self.is_over = self.has_lost_power = False
        self.calm = Calm()
        self.members: list[Member] = []
        self._keep_trace = keep_trace
        self._thread_rng = self._rng("threads")
        self._commits = 0
        self._machine = Machine(self.loop, self.clock, self.network, self.judge, self._rng("machine"), self.settings())
        self._broker: BrokerProcess | None = None
        self._inspector: Inspector | None = None
        self._scraper: Scraper | None = None
        self._next_crash_takes_power, self._short_lives = False, self._rng("short lives")
        self._load_check: LoadCheck | None = None
        self._coordinated = Coordinated(self, ADDRESS) if self.plan.transacts else None
        self._transaction_inspector: TransactionInspector | None = None

    def draw_plan(self, rng: random.Random) -> Plan:
        plan = Plan.draw(rng)
        plan.draw_transactions(self._rng("transacts"))
        plan.puts_metadata_back = self._rng("older metadata").random() < 0.5
        plan.rests_long = self._rng("long rest").random() < 0.25
        return plan

    def settings(self) -> dict[str, str]:
        """Of the broker."""
        return self.plan.settings()

    def run(self) -> Outcome:
        self.loop.after_step = self._after_step
        self.loop.on_crash = self._crash
        self.judge.network_allowance_ms = 2 * LONGEST_STALL_MS + 2_000
        try:
            of_groups, of_fetches = self._rng("slices").random() < 0.3, self._rng("long fetches").random() < 0.15
            of_producers = self._rng("packed producers").random() < 0.2
            slices = slices_of_one(of_groups=of_groups, of_fetches=of_fetches, of_producers=of_producers)
            with slices, self.suspensions.locks():
                self.loop.run_until_complete(self._story())
        except Violated:
            pass
        except NothingLeftToDo as nothing:
            self.judge.violated("liveness", str(nothing))
        except Exception:
            # One seed's trouble is not to keep the others from being run.
            self.judge.violated("exceptions", traceback.format_exc())
        for failure in self.loop.failures:
            self.judge.violated("exceptions", f"{failure.get('message')}: {failure.get('exception')!r}")
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
    def is_calm(self) -> bool:
        return self.calm.is_set()

    @property
    def join_bound_ms(self) -> int:
        """How long a join or a sync may be parked: one join phase, or one wait for the leader's assignment."""
        longest_ms = max(member.habits.group_rebalance_timeout_ms for member in self.members)
        return max(longest_ms, self.plan.initial_rebalance_delay_ms) + PROMPT_MS

    async def connect(self, client_id: str) -> Wire:
        """Raises ConnectionRefusedError while no broker listens."""
        return await connect(self.network, self.judge, ADDRESS, client_id, Wire)

    coordinators_move = False

    async def coordinator(self, found: Any, wire: Wire, client_id: str) -> Wire:
        """The connection that leads to the coordinator that was found."""
        return wire

    def authority_of(self, group_id: str, wire: Wire) -> Any:
        """Whether what is answered there is the group's state: if so, and in what term, else None."""
        return wire.incarnation

    def next_commit(self) -> int:
        self._commits += 1
        return self._commits

    def static_id_of(self, member_id: str) -> str:
        return static_id_of(member_id)

    async def sleep_ms(self, duration_ms: int) -> None:
        """Calm ends every sleep that began before it."""
        await self.calm.sleep_ms(duration_ms)

    # The story.

    async def _story(self) -> None:
        rng = self._rng("story")
        await self._start_broker()
        await self._create_topics()
        tasks = self._spawn_clients()
        storm_ends_us = self.loop.now_us + self.plan.stormy_ms * 1000
        while self.loop.now_us < storm_ends_us:
            await asyncio.sleep(rng.randint(1, 2 * self.plan.fault_every_ms) / 1000)
            await self._fault(rng)
        self.calm.set()
        await self._come_to_rest()
        if self._coordinated is not None:
            await self._coordinated.finish()
        await self._read_all_offsets()
        self.is_over = True
        await wait_for_all(tasks)
        await self._clean_up()

    async def _fault(self, rng: random.Random) -> None:
        self._scrape()
        connections = list(self.network.connections)
        kind = rng.random()
        if kind < 0.2 and self.plan.restarts:
            await self._restart(rng)
        elif kind < 0.3 and self.plan.disk_fails:
            self.judge.counts["failed write"] += 1
            self._machine.fail_a_write(rng)
        elif kind < 0.55 and connections:
            rng.choice(connections).reset()
        elif connections:
            near = rng.choice(connections)
            rng.choice([near, near.peer]).stall(rng.randint(1, LONGEST_STALL_MS) * 1000)

    def _spawn_clients(self) -> list[asyncio.Task[None]]:
        lives = []
        for group_number, size in enumerate(self.plan.members_of_group):
            for number in range(size):
                rng = self._rng(f"member {group_number}/{number}")
                member = Member(self, rng, Habits.draw(rng, f"group{group_number}", number))
                self.members.append(member)
                lives.append(member.live())
        tasks = [self.loop.create_task(life) for life in [*lives, *self._lives()]]
        for task in tasks:
            task.add_done_callback(self._client_ended)
        return tasks

    def _lives(self) -> list[Any]:
        """Of clients that are members of no group."""
        lives = [Producer(self, self._rng(f"producer {number}"), number, number == 0).live() for number in range(2)]
        lives += [Reader(self, self._rng(f"reader {number}"), self.partitions[number]).live() for number in range(2)]
        return lives if self._coordinated is None else [*lives, *self._coordinated.lives()]

    def _client_ended(self, task: "asyncio.Task[None]") -> None:
        error = task.exception()
        if error is not None:
            self.judge.violated("clients", "".join(traceback.format_exception(error)))

    async def _create_topics(self) -> None:
        topics = [CreatableTopic(name=topic, num_partitions=2, replication_factor=1) for topic in self.topics]
        wire = await self.connect("admin")
        response = await wire.call(CreateTopicsRequest(topics=topics), 7, within_ms=PROMPT_MS)
        wire.close()
        errors = {ErrorCode(topic.error_code).name for topic in response.topics}
        if errors != {"NONE"}:
            self.judge.violated("answers", f"create topics was answered {errors}")
        if self._coordinated is not None:
            await self._coordinated.create_topic()

    # The broker's lives.

    async def _start_broker(self) -> bool:
        """Whether it has started; a crash may come first."""
        self.judge.incarnation += 1
        self.trace.note("start", self.judge.incarnation)
        self._inspector = self._scraper = self._transaction_inspector = None
        self._broker = self._machine.boot(ADDRESS)
        try:
            await self._broker.started()
        except Crash:
            return False
        except StartError as error:
            self.judge.violated("start", str(error))
            return False
        if not self._broker.process.alive:
            return False
        # In its process: who asks first for the group coordinator makes it begin to load, and to set timers.
        broker = self._broker.broker
        self._broker.context.run(hosted_partitions, broker)
        self._inspector, self._scraper = Inspector(self.judge, broker), Scraper(self.judge, broker)
        if self._coordinated is not None:
            self._transaction_inspector = TransactionInspector(self._coordinated, broker)
        return True

    def _scrape(self) -> None:
        if self._scraper is not None and self._running().process.alive:
            self._scraper.scrape()

    async def _restart(self, rng: random.Random) -> None:
        broker = self._running()
        way = rng.choice(["stop", "kill", "power" if self.plan.may_lose_power else "kill"])
        self.trace.note(way)
        self.judge.counts[way] += 1
        self._next_crash_takes_power = way == "power"
        if rng.random() < 0.5:
            self._machine.light_fuse(rng)
            await asyncio.sleep(rng.randint(0, 3_000) / 1000)
        await self._end(broker, way)
        if self.plan.puts_metadata_back:
            self.judge.counts["older metadata"] += 1
            self._machine.put_back_producer_ids()
        await self._come_back(rng)
        if self.plan.may_lose_power and self._short_lives.random() < 0.3:
            # What the broker has found is in the memory of its machine, and perhaps not on the disk.
            self.judge.counts["power soon after a start"] += 1
            await asyncio.sleep(self._short_lives.randint(0, 20) / 1000)
            self._next_crash_takes_power = True
            await self._end(self._running(), "power")
            await self._come_back(rng)

    async def _come_back(self, rng: random.Random) -> None:
        while True:
            await asyncio.sleep(rng.randint(0, 12_000) / 1000)
            if rng.random() < 0.3:
                self._machine.light_fuse(rng)
            if await self._start_broker() and await self._wait_until_loaded():
                break
        self._machine.put_out_fuse()

    async def _end(self, broker: BrokerProcess, way: str) -> None:
        # What it holds between two steps its successor has to find in the log (I-17).
        live = live_states(broker.broker) if broker.process.alive else None
        self._inspector = None
        if way == "stop" and broker.process.alive:
            self._machine.repair_disk()
            with contextlib.suppress(Crash):
                await broker.stop()
        if broker.process.alive:
            self._kill(broker.process)
        survives = way != "power" or self.plan.syncs_every_write
        self._load_check = LoadCheck(live) if live is not None and survives else None

    def _crash(self, process: Process) -> None:
        self.judge.counts["crash within an operation"] += 1
        self._kill(process)

    def _kill(self, process: Process) -> None:
        power = self._next_crash_takes_power
        self.trace.note("dead", process.name, power)
        self._inspector = None
        self._load_check = None if self._load_check is None else self._load_check.once_more()
        self._machine.kill(self._running(), power=power)
        if power and not self.plan.syncs_every_write:
            self.has_lost_power = True
            self._load_check = None
            self.judge.power_was_lost()
            self.traffic.power_was_lost()

    async def _wait_until_loaded(self) -> bool:
        """False if the broker dies first."""
        running = self._running()
        while running.process.alive:
            if not any(hosted.is_loading for hosted in hosted_partitions(running.broker)):
                return True
            await asyncio.sleep(0.001)
        return False

    def _running(self) -> BrokerProcess:
        assert self._broker is not None, "no broker was started"
        return self._broker

    # The end.

    async def _come_to_rest(self) -> None:
        """I-20."""
        members = [member.habits for member in self.members]
        bound_ms = (
            self.plan.initial_rebalance_delay_ms
            + max(habits.group_rebalance_timeout_ms for habits in members)
            + max(habits.session_timeout_ms for habits in members)
            + LONGEST_STALL_MS
            + REACTION_MS
        )
        wrong = await wrong_after(bound_ms, self._unsettled, rests_long=self.plan.rests_long)
        if wrong:
            self.judge.violated("I-20", f"{bound_ms} ms after the last fault: {'; '.join(wrong)}")

    def _unsettled(self) -> list[str]:
        groups = {
            group.group_id: group
            for hosted in hosted_partitions(self._running().broker)
            for group in hosted.coordinator.shard.groups.values()
        }
        wrong = []
        for member in self.members:
            group = groups.get(member.habits.group_id)
            if group is None or group.state is not STABLE:
                wrong.append(f"{member.habits.group_id} is {None if group is None else group.state.name}")
            elif not member.in_step or member.generation != group.generation or member.member_id not in group.members:
                wrong.append(f"{member.habits.client_id} is not in {member.habits.group_id}")
        for group in groups.values():
            expected = sum(member.habits.group_id == group.group_id for member in self.members)
            if len(group.members) != expected:
                wrong.append(f"{group.group_id} has {len(group.members)} members, {expected} are alive")
        return wrong

    async def _read_all_offsets(self) -> None:
        """I-16, once more and for everything."""
        wire = await self.connect("auditor")
        for group_id, history in self.judge.groups.items():
            sent_us = self.loop.now_us
            response = await wire.call(fetch_request(group_id, None), 9, within_ms=PROMPT_MS)
            read = read_offsets(response.groups[0])
            for partition in history.offsets.partitions():
                offset, metadata = read.get(partition, (-1, ""))
                wrong = history.offsets.judge_read(partition, offset, sent_us)
                if wrong is not None or metadata != metadata_of(offset):
                    self.judge.violated("I-16", f"{group_id} {partition}: read {wrong}, {metadata!r}")
        wire.close()

    async def _clean_up(self) -> None:
        """I-17 for the log as it is, then I-19: when everybody has gone, their timers have gone with them."""
        broker = self._running().broker
        for index, live in live_states(broker).items():
            for difference in differences(live.state, replayed(broker, index, live.stored_offset)):
                self.judge.violated("I-17", f"live against its own log: {difference}")
        sessions_ms = max(member.habits.session_timeout_ms for member in self.members)
        rebalance_ms = max(member.habits.group_rebalance_timeout_ms for member in self.members)
        bound_ms = sessions_ms + 2 * rebalance_ms + PROMPT_MS
        for left in await wrong_after(bound_ms, lambda: self._left(broker), rests_long=self.plan.rests_long):
            self.judge.violated("I-19", f"{left} when everybody has gone")
        self._machine.repair_disk()
        if self._rng("expiry").random() < 0.2:
            await self._wait_for_expiry(broker)
        await self._running().stop()
        if len(broker.runtime.wheel):
            self.judge.violated("I-19", f"{len(broker.runtime.wheel)} timers in a broker that has stopped")

    def _left(self, broker: Any) -> list[str]:
        timers = timers_of_groups(broker)
        waiting = len(broker.replicas.delayed_fetch) + len(broker.replicas.delayed_produce)
        connections = len(broker.server.connections)
        left = [f"timers are left, {timers},"] if timers else []
        left += [f"{waiting} operations wait"] if waiting else []
        return [*left, f"{connections} connections are left"] if connections else left

    async def _wait_for_expiry(self, broker: Any) -> None:
        """I-19 for what the log says: groups, offsets and producers that no client uses any more go."""
        await asyncio.sleep(60 * (RETENTION_MINUTES + 2 * EXPIRY_CHECK_MINUTES))
        self._scrape()
        for hosted in hosted_partitions(broker):
            shard = hosted.coordinator.shard
            left = {*shard.groups, *shard.durable.metadata, *shard.durable.offsets}
            if left:
                self.judge.violated("I-19", f"{sorted(left)} have not expired")
        for (topic, index), log in broker.parts.log_directory.logs.items():
            if topic in self.topics and log.producers.states:
                self.judge.violated("I-19", f"{topic}-{index} remembers {sorted(log.producers.states)}")
        self.judge.counts["expiries"] += 1

    # Hooks.

    def _after_step(self, process: Process | None) -> None:
        if process is not None and self._load_check is not None:
            for difference in self._load_check.look(self._running().broker):
                self.judge.violated("I-17", f"after a restart: {difference}")
        if process is not None and self._inspector is not None:
            self._inspector.look()
            if self._transaction_inspector is not None:
                self._transaction_inspector.look()
        if self.judge.violations or self.loop.failures:
            raise Violated
        if self.loop.steps > STEPS_MAX:
            self.judge.violated("liveness", f"more than {STEPS_MAX} steps")

    def _thread_delay_us(self) -> int:
        return self._thread_rng.randint(10, 5_000)

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/{purpose}")


class Violated(Exception):
    """Enough has been seen."""
