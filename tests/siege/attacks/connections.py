"""Five thousand connections that do next to nothing."""

import struct
from collections.abc import Callable
from contextlib import suppress

from tests.siege.attacks.attack import Attack
from tests.siege.wire import Wire

COUNT = 5_000
BATCH = 250
HUGE_FRAME = 100 << 20
# Of a frame that is announced and never ends. Together more than the broker may hold for all.
BEGUN_BYTES = 256 << 10
SLOW_EVERY_S = 0.5

ASK_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
PRODUCE_HEADER = struct.pack(">hhih", 0, 9, 1, -1)


class Connections(Attack):
    """Idle ones, halves of frames, bytes that come one at a time, and frames that are announced as huge."""

    name = "connections"

    def run(self) -> None:
        kinds: list[Callable[[Wire], None]] = [self._idle, self._half_frame, self._huge_frame, self._slow]
        held: list[Wire] = []
        self._slow_ones: list[Wire] = []
        slow_at = self.target.duration_s
        for left_s in self.target.until_over():
            if len(held) < COUNT:
                for wire in self.connections(min(BATCH, COUNT - len(held))):
                    held.append(wire)
                    with suppress(OSError):
                        kinds[len(held) % len(kinds)](wire)
            if left_s < slow_at:
                slow_at = left_s - SLOW_EVERY_S
                self._send_a_byte_each()
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
        for number, wire in enumerate(self._slow_ones):
            with suppress(OSError):
                self.done["slow bytes"] += wire.socket.send(ASK_VERSIONS[number % 14 : number % 14 + 1])
