"""How many functions in how many files the broker's data paths run through: `python -m benchmarks.hops`.

Three brokers in one process serve real frames on a virtual network, in virtual time; `CallCounter` says what counts as
a call. All brokers count, the metadata store does not: it is another machine.

A path is run several times, and the run with the fewest calls is the result: a timer that is due in between only adds.
The numbers are the same in every run, and nothing here names a module of the broker, so that two trees can be compared
whose modules are others.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks import virtual_client as wire
from benchmarks.call_counter import CallCounter, Calls
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.virtual_client import Client
from tests.broker.virtual_cluster import Cluster, Node
from tests.simulation.links import Cut
from tests.simulation.network import Conditions

NODE_IDS = (1, 2, 3)
# What is imported, compiled or cached on first use is so after these.
WARM_UPS = 3
RUNS = 5
TRUNCATIONS = 2
# Until the followers' next fetches have come to the leader and wait there.
PAUSE_S = 0.03
# Longer than a frame is under way, shorter than anything that a broker does by itself afterwards.
STEP_S = 0.0005
CALM = Conditions(latency_us=(50, 50))
SEGMENT = Path("/data/truncated-0/00000000000000000000.log")
# How far these paths may be broken into parts.
CALLS_MAX = {
    "Produce, acks=all": 420,
    "JoinGroup, first of two": 66,
    "JoinGroup, second of two": 96,
    "Truncation, the follower": 283,
    "Truncation, the new leader": 327,
}
SETTINGS = {"auto_leader_rebalance_enable": "false"}


class World:
    """Three brokers and a client of each."""

    def __init__(self, cluster: Cluster, **settings: str) -> None:
        """`settings` are Kafka's names with underscores for dots."""
        self.cluster = cluster
        self._settings = {**SETTINGS, **settings}
        self.nodes: dict[int, Node] = {}
        self.clients: dict[int, Client] = {}

    async def start(self) -> None:
        self.cluster.network.draw_conditions = lambda _: CALM
        for node in await self.cluster.started(*NODE_IDS, **self._settings):
            self.nodes[node.node_id] = node
            self.clients[node.node_id] = await Client.connect(self.cluster, node)

    async def restart(self, node_id: int) -> None:
        """In an orderly way, so that its leaderships move to others and stay there."""
        old = self.nodes[node_id]
        await self.cluster.stop(old)
        node = self.nodes[node_id] = self.cluster.boot(node_id, old.disk, **self._settings)
        await node.started
        self.clients[node_id] = await Client.connect(self.cluster, node)

    async def create_topic(self, name: str, *replicas: int) -> None:
        await self.clients[replicas[0]].create_topic(name, list(replicas))
        await self.all_in_sync(name, replicas[0])

    async def all_in_sync(self, topic: str, leader_id: int) -> None:
        """Until all brokers know that `leader_id` leads, and that all replicas are in sync."""
        while True:
            known = [await client.metadata(topic) for client in self.clients.values()]
            partitions = [topics.get(topic) for _, topics in known]
            if all(each and each.leader_id == leader_id and len(each.isr) == len(NODE_IDS) for each in partitions):
                return
            await asyncio.sleep(PAUSE_S)

    async def produce(self, leader_id: int, topic: str, acks: int = -1) -> None:
        answer = await self.clients[leader_id].call(wire.PRODUCE, wire.produce_body(topic, b"value", acks))
        assert wire.produced_code(answer) == 0, "the record was refused"


Run = Callable[[CallCounter], Awaitable[None]]


async def _fewest(name: str, run: Run, *, warm_ups: int = WARM_UPS, runs: int = RUNS) -> Calls:
    results = []
    for _ in range(warm_ups + runs):
        counter = CallCounter()
        await asyncio.sleep(PAUSE_S)
        await run(counter)
        results.append(counter.calls(name))
    return min(results[warm_ups:], key=lambda calls: calls.count)


# Produce.


async def count_produce(world: World) -> list[Calls]:
    """acks=all, one record: from its arrival to the answer, both followers' fetches included."""
    leader_id = NODE_IDS[0]
    await world.create_topic("produced", *NODE_IDS)
    client = world.clients[leader_id]

    async def run(counter: CallCounter) -> None:
        client.when_answered(counter.stop)
        counter.start()
        await world.produce(leader_id, "produced")

    return [await _fewest("Produce, acks=all", run)]


# JoinGroup.


class Group:
    """Two members at the group's coordinator."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.members: dict[str, Client] = {}

    @classmethod
    async def stable(cls, world: World, group_id: str) -> "Group":
        group = cls(group_id)
        node = await group._coordinator(world)
        for _ in range(2):
            client = await Client.connect(world.cluster, node)
            code, _, _, member_id = wire.joined(await client.call(wire.JOIN_GROUP, wire.join_body(group_id, "")))
            assert code == 79, f"a new member is asked to join again with its id, but was answered {code}"
            group.members[member_id] = client
        for member_id in group.members:
            group.send_join(member_id)
            # The first joins alone, and stays a member while the second joins.
            await asyncio.sleep(PAUSE_S)
        first, second = group.members.values()
        await first.receive()
        group.send_join(next(iter(group.members)))
        await group.sync(await first.receive(), await second.receive())
        return group

    async def _coordinator(self, world: World) -> Node:
        body = wire.string(self.group_id) + b"\0"
        while True:
            answer = await world.clients[NODE_IDS[0]].call(wire.FIND_COORDINATOR, body)
            answer.int32()
            code, _, node_id = answer.int16(), answer.string(), answer.int32()
            if code == 0:
                return world.nodes[node_id]
            await asyncio.sleep(PAUSE_S)

    def send_join(self, member_id: str) -> None:
        self.members[member_id].send(wire.JOIN_GROUP, wire.join_body(self.group_id, member_id))

    async def sync(self, *joined: wire.Reader) -> None:
        """The leader's first, as it is the one that hands in assignments."""
        members = {}
        for answer in joined:
            code, generation, leader_id, member_id = wire.joined(answer)
            assert code == 0, f"{member_id} could not join: {code}"
            members[member_id] = (generation, list(self.members) if member_id == leader_id else [])
        for member_id, (generation, assigned) in sorted(members.items(), key=lambda item: not item[1][1]):
            body = wire.sync_body(self.group_id, generation, member_id, assigned)
            await self.members[member_id].call(wire.SYNC_GROUP, body)


async def count_join(world: World) -> list[Calls]:
    """The leader of a stable group of two joins again and is parked; the other's join ends the wait of both."""
    group = await Group.stable(world, "group")
    leader_id, follower_id = group.members
    firsts = []

    async def run(counter: CallCounter) -> None:
        first = CallCounter()
        first.start()
        group.send_join(leader_id)
        await asyncio.sleep(STEP_S)
        first.stop()
        firsts.append(first.calls("JoinGroup, first of two"))
        counter.start()
        group.send_join(follower_id)
        await asyncio.sleep(STEP_S)
        counter.stop()
        leader, follower = group.members[leader_id], group.members[follower_id]
        await group.sync(await leader.receive(), await follower.receive())

    second = await _fewest("JoinGroup, second of two", run)
    return [min(firsts[WARM_UPS:], key=lambda calls: calls.count), second]


# Truncation.


async def count_truncation(world: World) -> list[Calls]:
    """A leader that has a record of its own loses its leadership: from the request to elect until the record is cut.

    Neither it nor the new leader is the controller, whose decision does not count.
    """
    controller_id, _ = await world.clients[NODE_IDS[0]].metadata()
    preferred_id, old_id = (node_id for node_id in NODE_IDS if node_id != controller_id)
    await world.create_topic("truncated", preferred_id, old_id, controller_id)
    old_leaders, new_leaders = [], []
    for _ in range(1 + TRUNCATIONS):
        await world.restart(preferred_id)
        await world.all_in_sync("truncated", old_id)
        counter = await _truncate(world, world.nodes[controller_id], world.nodes[old_id])
        await world.all_in_sync("truncated", preferred_id)
        old_leaders.append(counter.calls("Truncation, the follower", world.nodes[old_id].process))
        new_leaders.append(counter.calls("Truncation, the new leader", world.nodes[preferred_id].process))
    return [min(each[1:], key=lambda calls: calls.count) for each in (old_leaders, new_leaders)]


async def _truncate(world: World, controller: Node, old: Node) -> CallCounter:
    # The followers' fetches get no answer. Between themselves, brokers connect from the network's default host.
    cut = Cut(frozenset({old.host}), frozenset({"client"}))
    world.cluster.links.cut(cut)
    await world.produce(old.node_id, "truncated", acks=1)
    await asyncio.sleep(PAUSE_S)
    counter, end = CallCounter(), asyncio.get_running_loop().create_future()
    size_before = old.disk.size(SEGMENT)

    def look(_: object) -> None:
        if old.disk.size(SEGMENT) < size_before and not end.done():
            counter.stop()
            end.set_result(None)

    world.cluster.loop.after_step = look
    counter.start()
    await world.clients[controller.node_id].call(wire.ELECT_LEADERS, wire.elect_preferred_body("truncated"))
    await end
    world.cluster.loop.after_step = None
    world.cluster.links.heal(cut)
    return counter


# The table.


def measure(**settings: str) -> list[Calls]:
    """Each path's calls; the same in every run with these settings."""
    cluster, results = Cluster(), []

    async def story() -> None:
        world = World(cluster, **settings)
        await world.start()
        for count in (count_produce, count_join, count_truncation):
            results.extend(await count(world))
        await cluster.stop_all(*world.nodes.values())

    try:
        cluster.run(story())
    finally:
        sys.setprofile(None)
        cluster.loop.close()
    return results


def figures() -> list[Figure]:
    return [
        Figure(f"calls of {each.name}", NO_BASELINE, "calls", [(each.count, 1)], at_most=CALLS_MAX[each.name])
        for each in measure()
    ]


def _print_table(results: list[Calls], verbose: bool) -> None:
    width = max(len(each.name) for each in results)
    print(f"{'path':{width}}  calls  files")
    for each in results:
        print(f"{each.name:{width}}  {each.count:5}  {len(each.by_file()):5}")
    for each in results if verbose else ():
        print(f"\n{each.name}: {each.count} calls in {len(each.by_file())} files, in the order in which it enters them")
        for file, count in each.by_file().items():
            print(f"  {count:5}  {file}")


def _as_json(results: list[Calls]) -> str:
    return json.dumps(
        {each.name: {"calls": each.count, "files": len(each.by_file()), "by_file": each.by_file()} for each in results},
        indent=2,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hops", description="Calls and files of data paths.")
    parser.add_argument("--verbose", action="store_true", help="also the files of each path, with their calls")
    parser.add_argument("--json", action="store_true", help="all of it, for programs")
    options = parser.parse_args()
    results = measure()
    if options.json:
        print(_as_json(results))
    else:
        _print_table(results, options.verbose)


if __name__ == "__main__":
    main()
