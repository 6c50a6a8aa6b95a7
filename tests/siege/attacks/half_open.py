"""Five thousand connections without a login: logins that are not begun, and TLS handshakes that go no further."""

import select
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress

from tests.siege.attacks.attack import Attack
from tests.siege.attacks.connections import ASK_VERSIONS
from tests.siege.wire import Wire

COUNT = 5_000
BATCH = 250
POLL_MS = 100
# SaslHandshake, version 1, without its mechanism.
HALF_A_HANDSHAKE = struct.pack(">ihhih", 16, 17, 1, 1, -1)


class HalfOpen(Attack):
    """The broker ends them at its deadlines, and others take their places."""

    name = "half-open"
    ratio_max = 2.0

    def run(self) -> None:
        hello = _hello()
        kinds: list[Callable[[], Wire]] = [
            lambda: self._begun(self.target.login, b""),
            lambda: self._begun(self.target.login, self.target.chance.choice((ASK_VERSIONS, HALF_A_HANDSHAKE))),
            lambda: self._begun(self.target.tls, hello[: self.target.chance.randrange(1, len(hello))]),
            lambda: self._begun(self.target.tls, hello),
        ]
        held: dict[int, Wire] = {}
        poll = select.poll()
        for _ in self.target.until_over():
            for number in range(min(BATCH, COUNT - len(held))):
                with suppress(OSError):
                    wire = kinds[number % len(kinds)]()
                    held[wire.socket.fileno()] = wire
                    poll.register(wire.socket, select.POLLIN)
                    self.done["connections"] += 1
            self.done["most at a time"] = max(self.done["most at a time"], len(held))
            for descriptor, _ in poll.poll(POLL_MS):
                if _has_ended(held[descriptor]):
                    poll.unregister(descriptor)
                    held.pop(descriptor).socket.close()
                    self.done["connections that the broker ended"] += 1
        for wire in held.values():
            wire.reset()

    def _begun(self, address: tuple[str, int], start: bytes) -> Wire:
        wire = Wire(address)
        wire.socket.sendall(start)
        wire.socket.setblocking(False)
        return wire


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def _has_ended(wire: Wire) -> bool:
    """Takes the answers, which nothing comes of."""
    try:
        return not wire.socket.recv(1 << 16)
    except BlockingIOError:
        return False
    except OSError:
        return True
