"""What befalls the cluster. Every fault ends by itself, and at once when calm is called for."""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.cluster.image import CONSUMER_OFFSETS
from tests.simulation.cluster.admin import Admin
from tests.simulation.cluster.console import Console
from tests.simulation.cluster.disk_errors import DiskErrors, refuse
from tests.simulation.cluster.node import Node
from tests.simulation.cluster.plan import LONGEST_PAUSE_MS
from tests.simulation.cluster.quotas import QuotaAdmin
from tests.simulation.cluster.store import STORE_HOST, StoreConditions
from tests.simulation.cluster.users import UserAdmin
from tests.simulation.links import Cut

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

LONGEST_STALL_MS = 6_000
LONGEST_CUT_MS = 12_000
LONGEST_ABSENCE_MS = 9_000
WALL_START_MS = 1_700_000_000_000
CALM_STORE = StoreConditions()
# Longer than a thread of a slow disk takes for what it had begun.
REPAIRED_MS = 2_000
# How many milliseconds to wait for a broker between a write and its sync.
WRITE_WITHIN_MS = 500


class Faults:
    def __init__(self, world: "ClusterWorld", rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._admin = Admin(world, random.Random(rng.getrandbits(64)))
        self._users = UserAdmin(world)
        self._quotas = QuotaAdmin(world)
        self._console = Console(world)
        self._disk_errors = DiskErrors(rng, world.make_rng)

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "stop": lambda: self._restart("stop"),
            "kill": lambda: self._restart("kill"),
            "power": lambda: self._restart("power"),
            "crash": self._crash,
            "pause": self._pause,
            "cut": self._cut,
            "reset": self._reset,
            "stall": self._stall,
            "store": self._trouble_the_store,
            "slow": self._slow_disk,
            "clock": self._jump,
            "disk": self._fail_disk,
            "elect": lambda: self._administer("elect", self._admin.elect),
            "reassign": lambda: self._administer("reassign", self._admin.reassign),
            "churn": lambda: self._administer("churn", self._admin.churn),
            "delete records": lambda: self._administer("delete records", self._admin.delete_records),
            "grow": lambda: self._administer("grow", self._admin.grow),
            "risk": lambda: self._administer("risk", self._admin.risk),
            "reboot": self._reboot,
            "rot": self._rot,
            "configure": lambda: self._administer("configure", self._admin.configure),
            "users": lambda: self._administer("users", self._users.alter),
            "quotas": lambda: self._administer("quotas", self._quotas.alter),
            "console": lambda: self._administer("console", self._console.work),
        }

    async def storm(self) -> None:
        """Until the storm is over; what has begun then ends soon."""
        world, plan = self._world, self._world.plan
        ends_us = world.loop.now_us + plan.stormy_ms * 1000
        kinds = [(name, action) for name, action in self.kinds.items() if name in plan.faults]
        under_way = []
        if plan.blackouts:
            under_way.append(world.spawn(self._black_out(world.make_rng("blackouts")), "blackouts"))
        if world.settings is not None:
            under_way.append(world.spawn(world.settings.live(), "settings"))
        while world.loop.now_us < ends_us:
            await world.sleep_ms(self._rng.randint(1, 2 * plan.fault_every_ms))
            name, action = self._rng.choice(kinds)
            under_way.append(world.spawn(action(), f"fault {name}"))
        world.calm_down()
        for task in under_way:
            await task
        if plan.throttles:
            await self._admin.raise_throttles()
        if world.settings is not None:
            await world.settings.restore()
        self._admin.client.close()
        self._users.client.close()
        self._quotas.client.close()

    def _note(self, name: str, *words: object) -> None:
        self._world.judge.counts[name] += 1
        self._world.trace.note("fault", name, *words)

    def _free_nodes(self) -> list[Node]:
        """Those that nothing is happening to, and that are up."""
        return [node for node in self._world.nodes.values() if node.is_up and not node.is_busy]

    def _free_node(self) -> Node | None:
        free = self._free_nodes()
        return self._rng.choice(free) if free else None

    # Lives.

    async def _black_out(self, rng: random.Random) -> None:
        """All machines that nothing else is happening to lose power at once; mostly that is every one."""
        for _ in range(rng.randint(1, 2)):
            await self._world.sleep_ms(rng.randint(1_000, self._world.plan.stormy_ms))
            if rng.random() < 0.5:
                await self._begin_lives(rng)
            if self._world.is_calm:
                return
            nodes = self._free_nodes()
            self._note("blackout" if len(nodes) == len(self._world.nodes) else "part of a blackout")
            for node in nodes:
                node.is_busy = True
                node.fail_power()
            await asyncio.gather(*(self._come_back(node) for node in nodes))

    async def _begin_lives(self, rng: random.Random) -> None:
        """Brokers are killed between a write and its sync, and come back: what they find is in the memory of their
        machines alone."""
        chosen: list[Node] = []
        for _ in range(WRITE_WITHIN_MS):
            chosen = [node for node in self._free_nodes() if node.has_unsynced_records]
            if chosen:
                break
            await self._world.sleep_ms(1)
        for node in chosen:
            node.is_busy = True
            node.kill()
        self._world.judge.counts["killed before a sync"] += len(chosen)
        await asyncio.gather(*(self._come_back(node) for node in chosen))
        await self._world.sleep_ms(rng.randint(0, 200))

    async def _reboot(self) -> None:
        """All machines that nothing else is happening to, each after its broker was stopped in an orderly way."""
        nodes = self._free_nodes()
        self._note("reboot" if len(nodes) == len(self._world.nodes) else "part of a reboot")
        for node in nodes:
            node.is_busy = True
        await asyncio.gather(*(self._reboot_one(node) for node in nodes))

    async def _reboot_one(self, node: Node) -> None:
        await node.stop()
        node.lose_power()
        await self._come_back(node)

    async def _restart(self, way: str) -> None:
        node = self._free_node()
        if node is None or (way == "power" and not self._world.may_lose_power(node)):
            return
        self._note(way, node.host)
        node.is_busy = True
        if way == "stop":
            await node.stop()
            if "power" in self._world.plan.faults and self._rng.random() < 0.5:
                self._note("power failure after a stop", node.host)
                node.lose_power()
        else:
            node.next_crash_takes_power = way == "power"
            node.kill()
        await self._come_back(node)

    async def _crash(self) -> None:
        """In the middle of some file operation, which may come much later."""
        node = self._free_node()
        if node is None:
            return
        self._note("crash within an operation", node.host)
        node.is_busy = True
        node.next_crash_takes_power = "power" in self._world.plan.faults and self._rng.random() < 0.5
        node.disk.light_fuse(self._rng, self._rng.randint(1, 40))
        await self._sleep(0, 3_000)
        node.kill()
        await self._come_back(node)

    async def _come_back(self, node: Node) -> None:
        while True:
            await self._sleep(0, self._rng.choice([300, 2_000, LONGEST_ABSENCE_MS]))
            if self._rng.random() < 0.2 and not self._world.is_calm:
                node.disk.light_fuse(self._rng, self._rng.randint(1, 60))
            if await node.start():
                break
        node.disk.put_out_fuse()
        node.is_busy = False

    async def _pause(self) -> None:
        node = self._free_node()
        if node is None:
            return
        self._note("pause", node.host)
        node.is_busy = True
        node.pause()
        await self._sleep(10, LONGEST_PAUSE_MS)
        node.resume()
        node.is_busy = False

    # The network.

    async def _cut(self) -> None:
        cuts = self._draw_cuts()
        self._note("cut", *(f"{sorted(cut.sources)} to {sorted(cut.targets)}" for cut in cuts))
        links = self._world.network.links
        links.cut(*cuts)
        await self._sleep(100, LONGEST_CUT_MS)
        links.heal(*cuts)

    def _draw_cuts(self) -> tuple[Cut, ...]:
        rng, world = self._rng, self._world
        hosts = [node.host for node in world.nodes.values()]
        one, *others = rng.sample(hosts, len(hosts))
        side, other_side = rng.choice(
            [
                ([one], [*others, STORE_HOST]),
                ([one], [*others, STORE_HOST, *world.client_hosts]),
                ([one], others),
                ([one], others[:1]),
                ([one], [STORE_HOST]),
                ([one], world.client_hosts),
                ([one, others[0]], [STORE_HOST]),
                (hosts, [STORE_HOST]),
            ]
        )
        there, back = Cut.both_ways(side, other_side)
        return rng.choice([(there, back), (there, back), (there,), (back,)])

    async def _reset(self) -> None:
        connections = list(self._world.network.connections)
        if connections:
            self._note("reset")
            self._rng.choice(connections).reset()

    async def _stall(self) -> None:
        connections = list(self._world.network.connections)
        if connections:
            self._note("stall")
            near = self._rng.choice(connections)
            self._rng.choice([near, near.peer]).stall(self._rng.randint(1, LONGEST_STALL_MS) * 1000)

    async def _trouble_the_store(self) -> None:
        self._note("store in trouble")
        self._world.store_machine.conditions = StoreConditions(
            latency_us=self._rng.choice([(100, 2_000), (1_000, 300_000), (100, 2_000_000)]),
            loses_answers=self._rng.choice([0.0, 0.1, 0.5]),
            forgets_history=self._rng.choice([0.0, 0.5]),
        )
        await self._sleep(500, LONGEST_CUT_MS)
        self._world.store_machine.conditions = CALM_STORE

    # Disks and clocks.

    async def _slow_disk(self) -> None:
        node = self._rng.choice(list(self._world.nodes.values()))
        self._note("slow disk", node.host)
        # Nothing is in the page cache either.
        node.is_slow = node.disk.is_cold = True
        await self._sleep(500, 8_000)
        node.is_slow = node.disk.is_cold = False

    async def _fail_disk(self) -> None:
        """For a while. Then the broker goes on, and has to be as good as any other; or it is restarted, as it must be
        where a log says so: after a failed fsync no log is usable."""
        node = self._free_node()
        if node is None:
            return
        code, failures = self._disk_errors.draw()
        operations = list(dict.fromkeys(operation for operation, _ in failures))
        self._note("disk errors", node.host, errno.errorcode[code], *operations)
        node.is_busy = node.has_failing_disk = True
        refuse(node.disk, code, failures)
        await self._sleep(500, 8_000)
        node.disk.repair()
        if self._disk_errors.draw_goes_on():
            await asyncio.sleep(REPAIRED_MS / 1000)
            if not node.has_failed_replica:
                self._note("repaired disk", node.host)
                node.is_busy = node.has_failing_disk = False
                return
        await self._sleep(0, 3_000)
        node.kill()
        await self._come_back(node)

    async def _rot(self) -> None:
        """A record is damaged where it was thought safe. A read of it fails, and the replica gets it from
        others, if they can do without it as a leader. In the end the machine gets another disk."""
        world, node = self._world, self._free_node()
        if node is None or not world.may_lose_power(node) or not world.is_in_sync():
            return
        node.is_busy = True
        if node.rot([*world.partitions, (CONSUMER_OFFSETS, 0), (CONSUMER_OFFSETS, 1)]):
            self._note("rot", node.host)
            await self._sleep(500, 9_000)
            if self._rng.random() < 0.3:
                node.kill()
                await self._come_back(node)
                node.is_busy = True
                await self._sleep(500, 5_000)
            while not world.may_lose_disk(node):
                await self._sleep(100, 100)
            node.kill()
            node.replace_disk()
            await self._come_back(node)
        node.is_busy = False

    async def _jump(self) -> None:
        node = self._rng.choice(list(self._world.nodes.values()))
        self._note("clock jumps", node.host)
        # Within what a record's timestamp may be off.
        node.clock.wall_start_ms = WALL_START_MS + self._rng.randint(-1_800_000, 1_800_000)

    async def _administer(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        self._note(name)
        await action()

    async def _sleep(self, at_least_ms: int, at_most_ms: int) -> None:
        await self._world.sleep_ms(self._rng.randint(at_least_ms, at_most_ms))


LIVES = ("stop", "kill", "power", "crash", "pause")
SURROUNDINGS = ("cut", "reset", "stall", "store", "slow", "clock")
OPERATIONS = ("elect", "reassign", "churn")
KINDS = LIVES + SURROUNDINGS + OPERATIONS
# Drawn after everything else of a plan.
LATER_KINDS = ("delete records", "configure", "disk")
LATEST_KINDS = ("grow", "risk", "reboot", "rot")
