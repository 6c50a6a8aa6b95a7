"""Five thousand connections without a login: logins that are not begun, and TLS handshakes that go no further."""

import itertools
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from tests.siege.attacks.attack import Attack
from tests.siege.attacks.connections import ASK_VERSIONS
from tests.siege.wire import Address, has_ended, reset

COUNT = 5_000
# Some are always on their way: ended by the broker, or not yet accepted.
KEPT = COUNT + 500
# They come at this pace, and no more at once. A flood of accepts is another attack, which has limits of its own.
PER_SECOND = 600
BATCH = 50
POLL_S = 0.01
LOOK_EVERY_S = 1
# SaslHandshake, version 1, without its mechanism.
HALF_A_HANDSHAKE = struct.pack(">ihhih", 16, 17, 1, 1, -1)

Start = tuple[Address, Callable[[], bytes]]
"""Where one connects to, and what it sends."""


class HalfOpen(Attack):
    """The broker ends them at its deadlines, and others take their places. None waits for another: where the broker's
    backlog is full, a connection takes the kernel a second or more."""

    name = "half-open"
    ratio_max = 2.0
    at_a_time = COUNT

    def run(self) -> None:
        starts = itertools.cycle(self._starts())
        self._poll = select.epoll()
        self._connecting: dict[int, tuple[socket.socket, bytes]] = {}
        self._open: dict[int, socket.socket] = {}
        before, began_s, past = self.target.descriptors(), time.monotonic(), 0
        look_at_s = began_s
        for _ in self.target.until_over():
            due = int((time.monotonic() - began_s) * PER_SECOND) - past
            past += due
            for _ in range(min(due, BATCH, KEPT - len(self._connecting) - len(self._open))):
                self._begin(*next(starts))
            for descriptor, _ in self._poll.poll(POLL_S):
                self._go_on(descriptor)
            if time.monotonic() >= look_at_s:
                look_at_s += LOOK_EVERY_S
                self.count_at_a_time(before)
        for connection in (*self._open.values(), *(each for each, _ in self._connecting.values())):
            reset(connection)

    def _starts(self) -> list[Start]:
        chance, hello = self.target.chance, _hello()
        return [
            (self.target.login, lambda: b""),
            (self.target.login, lambda: chance.choice((ASK_VERSIONS, HALF_A_HANDSHAKE))),
            (self.target.tls, lambda: hello[: chance.randrange(1, len(hello))]),
            (self.target.tls, lambda: hello),
        ]

    def _begin(self, address: Address, start: Callable[[], bytes]) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(address)
        self._connecting[connection.fileno()] = connection, start()
        self._poll.register(connection, select.EPOLLOUT)

    def _go_on(self, descriptor: int) -> None:
        """One is connected and sends its start, or one that was open has ended."""
        if descriptor in self._connecting:
            connection, start = self._connecting.pop(descriptor)
            if not _has_sent(connection, start):
                self._poll.unregister(descriptor)
                connection.close()
                return
            self._open[descriptor] = connection
            self._poll.modify(descriptor, select.EPOLLIN)
            self.done["connections"] += 1
        elif has_ended(self._open[descriptor]):
            self._poll.unregister(descriptor)
            self._open.pop(descriptor).close()
            self.done["connections that the broker ended"] += 1


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def _has_sent(connection: socket.socket, start: bytes) -> bool:
    """False: it could not connect, or was closed at once."""
    try:
        # Little enough for any send buffer.
        return connection.send(start) == len(start)
    except OSError:
        return False
