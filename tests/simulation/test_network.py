"""The network in memory."""

import asyncio
import random

import pytest

from tests.simulation.links import Cut
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.network import Conditions, SimulatedNetwork
from tests.simulation.trace import Trace

ADDRESS = ("broker", 9092)


class Recorder(asyncio.Protocol):
    def __init__(self):
        self.data = b""
        self.reads = []
        self.events = []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        self.reads.append(len(data))

    def eof_received(self):
        self.events.append("eof")

    def connection_lost(self, exc):
        self.events.append(exc and type(exc))

    def pause_writing(self):
        self.events.append("pause")

    def resume_writing(self):
        self.events.append("resume")


class BufferedRecorder(asyncio.BufferedProtocol):
    def __init__(self):
        self.data = b""
        self.events = []

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        self.buffer = bytearray(100)
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes):
        self.data += self.buffer[:nbytes]

    def eof_received(self):
        return False

    def connection_lost(self, exc):
        self.events.append(exc and type(exc))


class World:
    def __init__(self, seed=1, conditions=None, server=Recorder):
        self.loop = SimulationLoop()
        self.trace = Trace(lambda: self.loop.now_us, keep=True)
        self.network = SimulatedNetwork(self.loop, random.Random(seed), self.trace)
        if conditions is not None:
            self.network.draw_conditions = lambda rng: conditions
        self.server = Process("broker")
        self.client = Recorder()
        self.accepted = []
        self.loop.run_until_complete(self.loop.create_task(self.listen(server), context=self.server.context()))
        self.loop.run_until_complete(self.network.connect(lambda: self.client, *ADDRESS))
        self.loop.run_forever()

    async def listen(self, server):
        def factory():
            self.accepted.append(server())
            return self.accepted[-1]

        await self.network.listen(factory, *ADDRESS)


def test_each_end_knows_the_other():
    world = World()
    near, far = world.client.transport, world.accepted[0].transport
    assert near.get_extra_info("peername") == far.get_extra_info("sockname") == ADDRESS
    assert near.get_extra_info("sockname") == far.get_extra_info("peername")
    assert far.get_extra_info("socket") is None


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("server", [Recorder, BufferedRecorder])
def test_all_bytes_arrive_in_order_however_they_are_cut(seed, server):
    world = World(seed, server=server)
    sent = random.Random(seed).randbytes(30_000)
    for start in range(0, len(sent), 1_000):
        world.client.transport.writelines([sent[start : start + 300], memoryview(sent)[start + 300 : start + 1_000]])
        world.accepted[0].transport.write(sent[start : start + 1_000])
    world.loop.run_forever()
    assert world.accepted[0].data == sent
    assert world.client.data == sent


def test_pieces_are_cut_within_a_write_and_joined_across_writes():
    world = World(conditions=Conditions(latency_us=(1_000, 1_000), largest_piece=10))
    world.client.transport.write(b"x" * 100)
    world.client.transport.write(b"y" * 5)
    world.loop.run_forever()
    assert world.accepted[0].reads == [105]
    scattered = World(conditions=Conditions(gap_us=100, largest_piece=10))
    scattered.client.transport.write(b"x" * 100)
    scattered.loop.run_forever()
    assert len(scattered.accepted[0].reads) > 5


def test_a_receiver_that_does_not_read_makes_the_sender_pause():
    world = World(conditions=Conditions(window=1_000))
    near, far = world.client.transport, world.accepted[0].transport
    far.pause_reading()
    near.set_write_buffer_limits(high=500, low=100)
    near.write(b"x" * 1_400)
    world.loop.run_forever()
    assert (near.get_write_buffer_size(), world.client.events, world.accepted[0].data) == (400, [], b"")
    near.write(b"x" * 600)
    assert (near.get_write_buffer_size(), world.client.events) == (1_000, ["pause"])
    far.resume_reading()
    world.loop.run_forever()
    assert (near.get_write_buffer_size(), world.client.events) == (0, ["pause", "resume"])
    assert len(world.accepted[0].data) == 2_000


def test_a_narrow_receiver_is_sent_no_more_than_it_has_room_for():
    world = World()
    near, far = world.client.transport, world.accepted[0].transport
    far.narrow(1_000)
    far.pause_reading()

    near.write(bytes(3_000))

    assert near.get_write_buffer_size() == 2_000


def test_close_delivers_what_was_written():
    world = World(conditions=Conditions(window=1_000))
    world.client.transport.write(b"x" * 5_000)
    world.client.transport.close()
    world.client.transport.write(b"too late")
    world.loop.run_forever()
    assert world.accepted[0].data == b"x" * 5_000
    assert world.accepted[0].events == ["eof", None]
    assert world.client.events == [None]
    assert world.network.connections == {}


def test_close_towards_an_end_that_has_gone_does_not_hang():
    world = World(conditions=Conditions(window=1_000))
    world.accepted[0].transport.pause_reading()
    world.client.transport.write(b"x" * 5_000)
    world.loop.run_forever()
    world.accepted[0].transport.close()
    world.loop.run_forever()
    assert world.client.events[-1] in (None, ConnectionResetError)
    assert world.network.connections == {}


def test_abort_resets_the_other_end():
    world = World()
    world.accepted[0].transport.write(b"x" * 10)
    world.accepted[0].transport.abort()
    world.loop.run_forever()
    assert (world.client.events, world.accepted[0].events) == ([ConnectionResetError], [None])


def test_a_reset_loses_what_was_on_its_way():
    world = World(conditions=Conditions(latency_us=(100, 100)))
    world.client.transport.write(b"lost")
    world.client.transport.reset()
    world.loop.run_forever()
    assert world.accepted[0].data == b""
    assert (world.client.events, world.accepted[0].events) == ([ConnectionResetError], [ConnectionResetError])


def test_a_stall_delays_and_loses_nothing():
    world = World(conditions=Conditions(latency_us=(100, 100)))
    started_us = world.loop.now_us
    world.client.transport.peer.stall(5_000_000)
    world.client.transport.write(b"delayed")
    world.loop.run_forever()
    assert world.accepted[0].data == b"delayed"
    assert world.loop.now_us - started_us >= 5_000_000


def test_killed_process_resets_its_peers_and_frees_its_port():
    world = World()
    world.loop.kill(world.server)
    world.network.kill(world.server)
    world.loop.run_forever()
    assert (world.client.events, world.accepted[0].events) == ([ConnectionResetError], [])
    with pytest.raises(ConnectionRefusedError):
        world.loop.run_until_complete(world.network.connect(Recorder, *ADDRESS))


def test_bytes_sent_during_a_cut_arrive_when_it_heals():
    world = World()
    to_broker, _ = Cut.both_ways(["client"], ["broker"])
    world.network.links.cut(to_broker)
    world.client.transport.write(b"there")
    world.accepted[0].transport.write(b"and back")
    world.loop.run_forever()
    assert (world.accepted[0].data, world.client.data) == (b"", b"and back")
    # Another cut of the same way, which does not end with the first.
    world.network.links.cut(*Cut.both_ways(["client"], ["broker"]))
    world.network.links.heal(to_broker)
    world.loop.run_forever()
    assert world.accepted[0].data == b""
    world.network.links.heal_all()
    world.loop.run_forever()
    assert world.accepted[0].data == b"there"


def test_a_way_that_is_cut_fills_the_senders_buffer():
    world = World(conditions=Conditions(window=1_000))
    world.network.links.cut(*Cut.both_ways(["client"], ["broker"]))
    world.client.transport.write(b"x" * 1_500)
    world.loop.run_forever()
    assert world.client.transport.get_write_buffer_size() == 500
    world.network.links.heal_all()
    world.loop.run_forever()
    assert world.accepted[0].data == b"x" * 1_500


def test_connect_waits_until_both_directions_are_open():
    world = World()
    _, back = Cut.both_ways(["client"], ["broker"])
    world.network.links.cut(back)
    world.loop.call_later(5, world.network.links.heal_all)
    started_us = world.loop.now_us
    world.loop.run_until_complete(world.network.connect(Recorder, *ADDRESS))
    assert world.loop.now_us - started_us >= 5_000_000
    world.network.links.cut(back)
    with pytest.raises(TimeoutError):
        world.loop.run_until_complete(world.network.connect(Recorder, *ADDRESS))


def test_a_death_beyond_a_cut_is_not_noticed_before_it_heals():
    world = World()
    world.network.links.cut(*Cut.both_ways(["client"], ["broker"]))
    world.loop.kill(world.server)
    world.network.kill(world.server)
    world.loop.run_forever()
    assert world.client.events == []
    world.network.links.heal_all()
    world.loop.run_forever()
    assert world.client.events == [ConnectionResetError]


def test_a_stopped_process_gets_its_bytes_when_it_goes_on():
    world = World()
    world.loop.pause(world.server)
    world.client.transport.write(b"good morning")
    world.loop.run_forever()
    assert world.accepted[0].data == b""
    world.loop.resume(world.server)
    world.loop.run_forever()
    assert world.accepted[0].data == b"good morning"


def test_one_seed_one_trace():
    def run(seed):
        world = World(seed)
        for size in range(1, 3_000, 100):
            world.client.transport.write(bytes(size))
        world.loop.run_forever()
        return world.trace.digest()

    assert run(7) == run(7)
    assert run(7) != run(8)
