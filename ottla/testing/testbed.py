"""A broker or a cluster for tests, with all that looks at it: what the handles for blocking and for asynchronous tests
(`ottla.testing.handle`, `ottla.testing.async_handle`) have in common.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.broker.assembly import Parts
from ottla.broker.config.options import ConfigError
from ottla.storage.log import Log
from ottla.testing.audit.auditor import MODES, Auditor
from ottla.testing.clock.broker_times import BrokerTimes
from ottla.testing.clock.control import ClockControl
from ottla.testing.conditions import Sources
from ottla.testing.embedded import FaultHost, NotRunningError
from ottla.testing.histories import GroupHistories
from ottla.testing.hosting import HostedBrokers, Hosting
from ottla.testing.profile import profile_settings
from ottla.testing.reading import BrokerReader
from ottla.testing.scratch import ScratchDirectory
from ottla.testing.snapshots.kept_files import KeptFiles
from ottla.testing.surroundings.around import AllSurroundings, FaultSteps
from ottla.testing.surroundings.control import BrokerControl
from ottla.testing.surroundings.disks import BrokerDisk
from ottla.testing.surroundings.links import Links
from ottla.testing.views import ConnectionView
from ottla.testing.waits import Condition, WaitEnd, Waits
from ottla.testing.wire import WireRing
from ottla.testing.worker import BrokerLoop
from ottla.testing.worlds import QUIET_TURNS, TURNS_MAX, LeakedClients, ResetReport, WorldKeeper
from ottla.testing.writing import BrokerWriter

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact
    from ottla.testing.group_commands import GroupCommands
    from ottla.testing.log_jobs import LogJobs
    from ottla.testing.seeds.seed_loader import SeedReport
    from ottla.testing.snapshots.snapshots import RestoreReport, SnapshotReport, Snapshots
    from ottla.testing.step_lists.running import Scripts

DEADLINE_S: Final = 5.0
EMPTY: Final = ""
CAPTURE: Final = "ottla-testing-capture"
"""The file of a capture that is served, until it is open: then its name goes."""
LATE_CLOSING_S: Final = 0.1
LOOK_S: Final = 0.002

T = TypeVar("T")


class Testbed:
    """`start` first, `stop` at the end. Everything else may be called from any thread, and not in a forked child."""

    # Not a class of tests, whatever its name begins with.
    __test__ = False

    _home_thread: int | None = None
    """Of the loop that serves, once it does."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        settings: Mapping[str, object] | None = None,
        profile: str = "test",
        topics: Mapping[str, int] | None = None,
        data: str | Path = "auto",
        deadline: float = DEADLINE_S,
        fault_seed: int = 0,
        audit: str = "errors",
        unsynced: bool = False,
        hosting: Hosting | None = None,
    ) -> None:
        """`profile` is of `ottla.testing.profile`, and `settings` go before it. `topics` are created at the start, each
        with this number of partitions. `data`: the directory to make the data directory in, or auto. `deadline`: of
        waits, in seconds. `fault_seed`: of what fault rules leave to chance. `audit`: off records nothing; errors and
        all do. `unsynced`: of several brokers; a power cut can take what is not synced.
        `hosting`: of brokers other than on free ports of this machine with `settings` and `profile`. Raises
        ConfigError."""
        _check_options(audit, deadline, unsynced=unsynced, brokers=brokers)
        self.deadline_s, self._data, self._snapshots_dir = deadline, data, Path()
        self.wire, self.histories = WireRing(), GroupHistories()
        self.waits = Waits(self._hints)
        if hosting is None:
            hosting = Hosting.on_free_ports({**profile_settings(profile), **(settings or {})})
        self._kept_files, times = KeptFiles(), BrokerTimes()
        fault_host = FaultHost(fault_seed, self.wire.noting, WaitEnd(deadline, self._hints))
        hosting = hosting._replace(log=times.shown_in(hosting.log, times.timeline))
        self.steps = FaultSteps(times.timeline)
        self._around = AllSurroundings(self._kept_files.before_change, self.steps, keeps_unsynced=unsynced)
        self.hosted = HostedBrokers(hosting, brokers, self._attach, fault_host, self._around, times)
        self.clock = ClockControl(times, self.hosted.parts, self.wire, self.waits)
        self.reader = BrokerReader(self.hosted, self.wire)
        self.sources = Sources(self.reader, self.histories, self.wire, times.timeline.now_ms)
        self.auditor = Auditor(self.hosted, self.reader, self.wire, self.steps.damages)
        self.writer = BrokerWriter(self.hosted, self.sources, self.waits, self.wire)
        self.world, self._leaked = WorldKeeper(self.hosted, self.histories, self.wire), LeakedClients()
        self.contents: str | None = None
        """What the world is: EMPTY as at the start, the name of a snapshot, or None where it may be anything."""
        self.control = BrokerControl(self.hosted, self._around, self.steps, self.sources, self.waits)
        self.links = Links(self, self._around.ways, self.steps, lambda: self.hosted.node_ids)
        self._topics, self._is_audited = dict(topics or {}), audit != "off"
        self._loop: BrokerLoop | None = None
        self._scratch: ScratchDirectory | None = None

    def __reduce__(self) -> str:
        """Of this and of all handles. Raises NotRunningError: multiprocessing gives a child what can be pickled."""
        raise NotRunningError("a handle works in its own process only: give another one its bootstrap address instead")

    # Life.

    def start(self) -> None:
        """Raises StartError, ConfigError."""
        scratch = ScratchDirectory(self._data)
        loop = BrokerLoop()
        try:
            loop.run(self.start_here(scratch.path / "data", scratch.path / "snapshots"))
        except BaseException:
            loop.stop()
            scratch.remove()
            raise
        self._loop, self._scratch = loop, scratch

    async def start_here(self, data_dir: Path, snapshots_dir: Path) -> None:
        """As `start`, on the loop of the caller, which serves from then on, and makes all calls. The directory of
        snapshots is on the file system of the data, and nothing else is in it. Raises StartError."""
        self._home_thread = threading.get_ident()
        self._snapshots_dir = snapshots_dir
        self.remove_snapshots()
        await self.hosted.start(data_dir)
        await self._make_topics()
        await self._serve_groups()
        await self.world.remember()
        self.auditor.begin(is_on=self._is_audited)
        self.contents = EMPTY

    async def _serve_groups(self) -> None:
        """A client that finds no coordinator asks again, librdkafka's after a second: in a cluster the first test with
        a group would pay for that. A broker that is alone lets FindCoordinator wait for the moment that it takes, so a
        test without groups need not import it."""
        if len(self.hosted.parts()) > 1:
            await self.writer.ensure_group_coordinators()

    async def _make_topics(self) -> None:
        for name, partitions in self._topics.items():
            await self.writer.create_topic(name, partitions, None, {})

    def stop(self) -> None:
        """In a forked child it does nothing: the brokers are its parent's."""
        loop, scratch = self._loop, self._scratch
        if loop is None or loop.is_forked:
            return
        assert scratch is not None, "what runs has its data somewhere"
        self._loop = self._scratch = None
        try:
            loop.run(self.stop_here())
        finally:
            loop.stop()
            scratch.remove()

    async def stop_here(self) -> bool:
        """The end of `start_here`: whether all data was closed cleanly. Nothing that a test has broken holds it up."""
        await self._clear_scripts()
        self._clear_rules()
        await self.control.cancel_restarts()
        self._around.heal()
        return await self.hosted.stop()

    @property
    def loop(self) -> BrokerLoop:
        """Raises NotRunningError."""
        if self._loop is None:
            raise NotRunningError("the broker is not open")
        return self._loop

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        __tracebackhide__ = True
        if self._loop is None and threading.get_ident() == self._home_thread:
            return function(*arguments)
        return self.loop.call(function, *arguments)

    def disk(self, node_id: int) -> BrokerDisk:
        """Raises NotRunningError for a broker that is none of the cluster's."""
        state = self._around.disks.get(node_id)
        if state is None:
            known = ", ".join(map(str, self.hosted.node_ids))
            raise NotRunningError(f"no broker {node_id!r} is part of the cluster, only {known}")
        return BrokerDisk(self, node_id, state, self.steps, lambda: self.hosted.parts().get(node_id), self._log_damaged)

    @property
    def capture_path(self) -> Path:
        """Of a capture that is served, on the file system of the data."""
        return self._snapshots_dir.with_name(CAPTURE)

    def note_step(self, what: str) -> None:
        """For the report of a failure."""
        self.call(self.steps.note, what)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        return self.loop.run(coroutine)

    @cached_property
    def snapshots(self) -> "Snapshots":
        # Imported here, as what follows: most tests need none of it.
        from ottla.testing.snapshots.snapshots import Snapshots

        return Snapshots(self.hosted, self.world, self.clock, self._kept_files, self.sources, self.waits)

    @property
    def snapshots_if_used(self) -> "Snapshots | None":
        return self.__dict__.get("snapshots")

    @cached_property
    def group_commands(self) -> "GroupCommands":
        from ottla.testing.group_commands import GroupCommands

        return GroupCommands(self.hosted, self.reader, self.wire, self.writer.ensure_group_coordinators)

    @cached_property
    def log_jobs(self) -> "LogJobs":
        from ottla.testing.log_jobs import LogJobs

        return LogJobs(self.hosted, self.reader)

    @cached_property
    def scripts(self) -> "Scripts":
        from ottla.testing.step_lists.running import Scripts

        return Scripts(self)

    @property
    def scripts_if_used(self) -> "Scripts | None":
        return self.__dict__.get("scripts")

    # Coroutines of the brokers' loop.

    async def wait(self, condition: Condition, within: float | None) -> None:
        """`within`: seconds; None: the deadline of this testbed. Raises DeadlineExceeded."""
        await self.waits.wait(condition, self.deadline_s if within is None else within)

    async def reset(self) -> ResetReport:
        """Scripts and fault rules go first, then links, disks and brokers are as at first, and time is the machine's
        again. The topics that were given at the start are made again."""
        await self._clear_scripts()
        self._clear_rules()
        self.clock.reset()
        leaks = await self._leaks()
        await self.control.heal()
        report = await self.world.reset(leaks, len(self.reader.group_ids()))
        self.clock.timeline.forget_latest()
        self.auditor.begin(is_on=self.auditor.recorder is not None)
        await self._make_topics()
        self._around.all_synced()
        self.contents = EMPTY
        return report

    async def load(self, seed: "str | Path | Mapping[str, Any]", *, with_files: bool = True) -> "SeedReport":
        """`with_files`: whether a mapping may name files, which are then those of the working directory. Raises
        SeedError and OSError."""
        # Imported here: most tests load no seed.
        from ottla.testing.seeds.seed_loader import SeedLoader

        return await SeedLoader(self.hosted, self.reader, self.writer, self.group_commands).load(
            seed, with_files=with_files
        )

    async def snapshot(self, name: str) -> "SnapshotReport":
        """Raises SnapshotError, OSError, KafkaStorageError, RuleError."""
        return await self.snapshots.take(name, self._snapshots_dir)

    def remove_snapshots(self) -> None:
        """Those that are left of a process that was killed, too."""
        snapshots = self.snapshots_if_used
        for name in () if snapshots is None else snapshots.names:
            self.snapshots.drop(name)
        if self._snapshots_dir.exists():
            from shutil import rmtree

            rmtree(self._snapshots_dir, ignore_errors=True)

    async def restore(self, name: str, *, members: str = "leave") -> "RestoreReport":
        """Scripts and fault rules go first, then links, disks and brokers are as at first. Raises SnapshotError,
        StoreError."""
        self.snapshots.checked(name, members)
        await self._clear_scripts()
        self._clear_rules()
        leaks = await self._leaks()
        await self.control.heal()
        report = await self.snapshots.restore(name, leaks, members=members)
        self.clock.timeline.forget_latest()
        self.auditor.begin(is_on=self.auditor.recorder is not None)
        self._around.all_synced()
        self.contents = name
        return report

    async def open_connections(self, worker: str = "") -> list[ConnectionView]:
        """Those of clients, or of the clients of a worker. What was closed just before the call is not among them."""
        quiet, before = 0, None
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            now = self.wire.count, self.reader.connection_ids()
            quiet, before = quiet + 1 if now == before else 0, now
            if quiet == QUIET_TURNS:
                break
        return self.reader.connections(worker)

    async def left_open(self, test: str, worker: str = "") -> list[ConnectionView]:
        """Those that clients of the test have open, at its end. On a busy machine the kernel says some milliseconds
        later that a client has closed one: they have `LATE_CLOSING_S` to go."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + LATE_CLOSING_S
        while left := [each for each in await self._named_connections(worker) if each.opened_in == test]:
            if loop.time() >= ends_s:
                break
            await asyncio.sleep(LOOK_S)
        return left

    # Inside.

    def _hints(self) -> list[str]:
        """What may be behind any wait that is over."""
        return self.clock.hints(of_wait=True)

    async def _named_connections(self, worker: str = "") -> list[ConnectionView]:
        return self._leaked.named(await self.open_connections(worker))

    async def _leaks(self) -> list[ConnectionView]:
        """All that are open, which are known from now on."""
        leaks = await self._named_connections()
        self._leaked.note(leaks)
        return leaks

    def _log_damaged(self, log: Log) -> None:
        if self.snapshots_if_used is not None:
            self.snapshots.log_damaged(log)

    async def _clear_scripts(self) -> None:
        if self.scripts_if_used is not None:
            await self.scripts.clear()

    def _clear_rules(self) -> None:
        """What they hold up is dropped: it belongs to the world that ends."""
        faults = self.hosted.fault_host.faults_if_used
        if faults is not None:
            if self.wire.coverage is not None:
                self.wire.coverage.note_injected(faults.all_since_clear())
            faults.drop_waiting()
            faults.clear()

    def _attach(self, parts: Parts) -> None:
        parts.group_loader.when_made.append(lambda made: made.timed_observers.append(self.histories.observe))
        self.hosted.capture_host.attach(parts)
        self.waits.attach(parts)
        self.clock.attach(parts)
        self.world.attach(parts)
        self.auditor.attach(parts)
        parts.group_loader.when_made.append(lambda made: made.timed_observers.append(self._count))
        self._around.attach(parts)

    def _count(self, fact: "Fact", now_ms: int) -> None:
        if self.wire.coverage is not None:
            self.wire.coverage.observe(fact, now_ms)


def _check_options(audit: str, deadline: float, *, unsynced: bool, brokers: int) -> None:
    """Raises ConfigError."""
    if audit not in MODES:
        raise ConfigError(f"audit={audit!r}: expected one of {', '.join(MODES)}")
    if unsynced and brokers == 1:
        raise ConfigError("unsynced=True is of several brokers: one by itself is not killed")
    if deadline <= 0:
        raise ConfigError(f"deadline={deadline!r}: expected seconds, more than 0")
