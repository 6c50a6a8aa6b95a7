"""Five thousand connections that do next to nothing."""

import itertools
import struct
from collections.abc import Callable
from contextlib import suppress

from tests.siege.attacks.attack import Attack, still_held
from tests.siege.wire import Wire

COUNT = 5_000
# The broker ends some at once: those whose frames are too large, and those for which it has no memory.
KEPT = COUNT + 250
# What the broker's backlog takes: where it is full, a connection takes the kernel a second or more.
BATCH = 50
PER_SECOND = 800
HUGE_FRAME = 100 << 20
# Of a frame that is announced and never ends. Together more than the broker may hold for all.
BEGUN_BYTES = 256 << 10
LOOK_EVERY_S = 0.5

ASK_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
PRODUCE_HEADER = struct.pack(">hhih", 0, 9, 1, -1)


class Connections(Attack):
    """Idle ones, halves of frames, bytes that come one at a time, and frames that are announced as huge. The broker
    ends some of them, and others take their places."""

    name = "connections"
    at_a_time = COUNT

    def run(self) -> None:
        before = self.target.descriptors()
        kept: list[Callable[[Wire], None]] = [self._idle, self._half_frame, self._slow]
        # Its place has to be taken again.
        begin = itertools.cycle([*kept, *kept, *kept, self._huge_frame])
        held: list[Wire] = []
        self._slow_ones: list[Wire] = []
        looks_at_s = self.target.duration_s
        for left_s in self.target.until_over():
            wires = self.connections(min(BATCH, KEPT - len(held)))
            held += wires
            for wire in wires:
                with suppress(OSError):
                    next(begin)(wire)
            self.target.pause(BATCH / PER_SECOND)
            if left_s < looks_at_s:
                looks_at_s = left_s - LOOK_EVERY_S
                held = still_held(held)
                self._send_a_byte_each()
                self.count_at_a_time(before)
        for wire in held:
            wire.reset()

    def _idle(self, wire: Wire) -> None:
        if self.target.chance.random() < 0.5:
            wire.socket.sendall(ASK_VERSIONS)

    def _half_frame(self, wire: Wire) -> None:
        begun = struct.pack(">i", 1 << 20) + PRODUCE_HEADER + bytes(self.target.chance.randrange(2000))
        wire.socket.sendall(begun[: self.target.chance.randrange(1, len(begun))])

    def _huge_frame(self, wire: Wire) -> None:
        wire.socket.setblocking(False)
        wire.socket.send(struct.pack(">i", HUGE_FRAME) + PRODUCE_HEADER + bytes(BEGUN_BYTES))

    def _slow(self, wire: Wire) -> None:
        self._slow_ones.append(wire)

    def _send_a_byte_each(self) -> None:
        self._slow_ones = [wire for wire in self._slow_ones if wire.socket.fileno() >= 0]
        for number, wire in enumerate(self._slow_ones):
            with suppress(OSError):
                self.done["slow bytes"] += wire.socket.send(ASK_VERSIONS[number % 14 : number % 14 + 1])
