"""Many connections that one process drives without waiting for any of them."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector, SelectorKey

from tests.siege.attacks.attack import Target
from tests.siege.wire import Wire

READ_BYTES = 1 << 18


class Crowd:
    """Sends bytes on every connection, as many as it takes; one that the broker ends is replaced."""

    def __init__(
        self, connect: Callable[[], Wire], count: int, payload: Callable[[], bytes], *, reads: bool, done: Counter[str]
    ) -> None:
        """`payload` gives whole requests; with `reads` the answers are taken, and dropped."""
        self._connect = connect
        self._count = count
        self._payload = payload
        self._events = EVENT_WRITE | (EVENT_READ if reads else 0)
        self._done = done
        self._rests: dict[int, memoryview] = {}

    def run(self, target: Target) -> None:
        with DefaultSelector() as selector:
            for left_s in target.until_over():
                while len(self._rests) < self._count and self._add(selector):
                    pass
                for key, events in selector.select(min(left_s, 0.1)):
                    self._serve(selector, key, events)
            for key in list(selector.get_map().values()):
                key.data.reset()

    def _add(self, selector: DefaultSelector) -> bool:
        try:
            wire = self._connect()
        except OSError:
            return False
        wire.socket.setblocking(False)
        selector.register(wire.socket, self._events, wire)
        self._rests[wire.socket.fileno()] = memoryview(b"")
        self._done["connections"] += 1
        return True

    def _serve(self, selector: DefaultSelector, key: SelectorKey, events: int) -> None:
        wire, number = key.data, key.fd
        try:
            if events & EVENT_READ:
                received = len(wire.socket.recv(READ_BYTES))
                if not received:
                    raise ConnectionResetError
                self._done["bytes read"] += received
            if events & EVENT_WRITE:
                rest = self._rests[number] or memoryview(self._payload())
                sent = wire.socket.send(rest)
                self._rests[number] = rest[sent:]
                self._done["bytes sent"] += sent
        except BlockingIOError:
            pass
        except OSError:
            self._done["connections that the broker ended"] += 1
            selector.unregister(wire.socket)
            del self._rests[number]
            with suppress(OSError):
                wire.socket.close()


def name(chance: random.Random, length: int) -> str:
    return f"{chance.getrandbits(4 * length):0{length}x}"
