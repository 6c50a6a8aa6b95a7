"""A consumer group rebalancing before your eyes: `python examples/rebalance_live.py`, about twenty seconds.

Three consumers join a group one after another, then one leaves and one is killed. A broker in this process reports what
its coordinator does and why. With --bootstrap HOST:PORT the same plays on any Kafka-protocol
broker, which can be asked for its states but not for its reasons.
"""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from uuid import uuid4

from aiokafka import AIOKafkaConsumer
from rich.console import Console
from rich.text import Text

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.cli.client import Client
from ottla.cli.failures import ClientError
from ottla.cli.operations.groups import GroupDescription, describe_group
from ottla.cli.operations.topics import create_topic, existing_topic
from ottla.coordinator import facts
from ottla.protocol.address import parse_addresses

COLOURS = {"anna": "cyan", "bruno": "magenta", "clara": "yellow"}
SESSION_TIMEOUT_MS = 6000
REBALANCED_WITHIN_S = 120
# So that one can read along; the play waits for the group, not for the clock.
PAUSE_S = 1
LOOK_EVERY_S = 0.05


class Timeline:
    """One line per thing that happens, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._began = monotonic()

    def add(self, mark: str, text: str | Text, style: str = "") -> None:
        body = Text().append(text, style or None)
        for name, colour in COLOURS.items():
            body.highlight_regex(rf"(?<!\d ){name}", f"bold {colour}")
        self.show(monotonic() - self._began, mark, body)

    def show(self, seconds: float, mark: str, body: Text) -> None:
        self._console.print(Text(f"{seconds:6.2f} s  {mark} ").append_text(body))

    def observe(self, fact: facts.Fact) -> None:
        """Show a fact that the coordinator of an embedded broker reports."""
        match fact:
            case facts.RebalanceStarted(cause=cause, member_id=member_id):
                self.add("⟳", f"rebalance: {cause}" + (f" ({name_of(member_id)})" if member_id else ""), "bold red")
            case facts.StateChanged(from_state=before, to_state=after, generation=generation):
                self.add("→", f"{before} → {after}, generation {generation}", "dim")
            case facts.SessionExpired(member_id=member_id, session_timeout_ms=timeout_ms):
                self.add("†", f"no heartbeat of {name_of(member_id)} for {timeout_ms / 1000:g} s", "red")
            case facts.GenerationStarted(generation=generation, protocol_name=protocol, leader_id=leader):
                self.add("•", f"generation {generation}: {name_of(leader)} leads and assigns by {protocol}", "dim")
            case _:  # Others are for the log.
                pass

    def show_owners(self, group: GroupDescription) -> None:
        owners = {p: name_of(m.member_id) for m in group.members for _, p in m.assignment or ()}
        line = Text()
        for partition, name in sorted(owners.items()):
            line.append(f" {partition} {name:<6}", f"bold black on {COLOURS.get(name, 'white')}").append(" ")
        self.add("✓", line)


def name_of(member_id: str) -> str:
    return next((name for name in COLOURS if member_id.startswith(name)), member_id)


class Watch:
    """Asks for the group again and again; shows what has changed, and who owns what whenever the group is stable."""

    def __init__(self, client: Client, group_id: str, timeline: Timeline, *, show_states: bool) -> None:
        self._client = client
        self._group_id = group_id
        self._timeline = timeline
        self._show_states = show_states
        self._state = ""
        self._owners: object = None
        # Set while the group is stable, by the number of its members.
        self._stable = {members: asyncio.Event() for members in range(1, len(COLOURS) + 1)}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            with suppress(ClientError):
                self._show(await describe_group(self._client, self._group_id))

    def _show(self, group: GroupDescription) -> None:
        owners = {m.member_id: m.assignment for m in group.members}
        if self._show_states and group.state != self._state:
            self._timeline.add("→", f"{group.state}, {len(group.members)} members", "dim")
        if group.state == "Stable" and owners != self._owners:
            self._timeline.show_owners(group)
            self._owners = owners
        self._state = group.state
        for members, is_stable in self._stable.items():
            if group.state == "Stable" and members == len(owners):
                is_stable.set()
            else:
                is_stable.clear()

    async def stable_with(self, members: int) -> None:
        """Wait for a stable group of so many: who joins during a rebalance of others sets off none of its own."""
        async with asyncio.timeout(REBALANCED_WITHIN_S):
            await self._stable[members].wait()
        await asyncio.sleep(PAUSE_S)


async def play(bootstrap: str, topic: str, timeline: Timeline, watch: Watch) -> None:
    consumers = {}
    for members, name in enumerate(COLOURS, start=1):
        timeline.add("+", f"{name} starts", "green")
        command = (sys.executable, __file__, "consumer", name, bootstrap, topic)
        consumers[name] = await asyncio.create_subprocess_exec(*command)
        await watch.stable_with(members)
    timeline.add("-", "bruno stops and leaves the group", "green")
    consumers["bruno"].send_signal(signal.SIGTERM)
    await watch.stable_with(2)
    timeline.add("✗", "clara is killed: no LeaveGroup, no more heartbeats", "green")
    consumers["clara"].kill()
    await watch.stable_with(1)
    timeline.add("-", "anna stops and leaves the group", "green")
    consumers["anna"].send_signal(signal.SIGTERM)
    for consumer in consumers.values():
        await consumer.wait()


async def consume(name: str, bootstrap: str, topic: str) -> None:
    """The life of one member: a process of its own, so that it can be killed."""
    logging.disable()  # The timeline shows what the library would warn of.
    settings = {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 300, "metadata_max_age_ms": 60_000}
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, client_id=name, **settings)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await consumer.start()
    await stopped.wait()
    await consumer.stop()


async def main(bootstrap: str | None, timeline: Timeline) -> None:
    async with AsyncExitStack() as stack:
        if bootstrap is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            config = ServerConfig.parse(None, ["group.initial.rebalance.delay.ms=500"])
            broker = Broker(config, data_dir=Path(directory), port=0, log=LazyLog(level="error"))
            await broker.start()
            stack.push_async_callback(broker.stop)
            broker.groups.observers.append(timeline.observe)
        address = bootstrap or broker.bootstrap
        topic = f"rebalance-{uuid4().hex[:6]}"
        client = await stack.enter_async_context(Client(parse_addresses(address), timeout_s=10))
        await create_topic(client, topic, partitions=3, replication_factor=1, configs={})
        await existing_topic(client, topic)
        timeline.add("○", f"topic {topic} with 3 partitions at {address}", "bold")
        watch = Watch(client, topic, timeline, show_states=bootstrap is not None)
        watching = asyncio.create_task(watch.run())
        await play(address, topic, timeline, watch)
        watching.cancel()


if __name__ == "__main__":
    if sys.argv[1:2] == ["consumer"]:
        asyncio.run(consume(*sys.argv[2:]))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="an existing broker; default: one of its own")
        asyncio.run(main(parser.parse_args().bootstrap, Timeline()))
