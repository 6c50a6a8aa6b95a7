"""Stands between clients and a broker, and looks at which requests pass: for tests that end a client at a given one."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

FRAME_HEAD_BYTES = 4
API_KEY_BYTES = 2
RECEIVE_BYTES = 1 << 16

Passes = Callable[[int], bool]
"""Whether a request with this API key is handed on; called in the order in which requests come."""


class FrameRelay:
    """Listens on `port` and connects each client to the broker. A request that may not pass ends its connection."""

    def __init__(self, listen: str, broker: str, passes: Passes) -> None:
        """Both addresses are HOST:PORT."""
        self._broker, self._passes = _address(broker), passes
        self._lock = threading.Lock()
        self._listening = socket.create_server(_address(listen))
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in [self._listening, *self._connections]:
            _shut(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                broker = socket.create_connection(self._broker)
            except OSError:
                return
            self._connections += [client, broker]
            for target in (self._hand_on_requests, self._hand_on_responses):
                threading.Thread(target=target, args=(client, broker), daemon=True).start()

    def _hand_on_requests(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            while (frame := _frame(client)) is not None:
                api_key = int.from_bytes(frame[FRAME_HEAD_BYTES : FRAME_HEAD_BYTES + API_KEY_BYTES], "big")
                with self._lock:
                    if not self._passes(api_key):
                        break
                broker.sendall(frame)
        except OSError:
            pass
        _shut(client)
        _shut(broker)

    def _hand_on_responses(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            while data := broker.recv(RECEIVE_BYTES):
                client.sendall(data)
        except OSError:
            pass
        _shut(client)
        _shut(broker)


def _frame(sender: socket.socket) -> bytes | None:
    """One request with its length in front; None at the end of the connection."""
    head = _exactly(sender, FRAME_HEAD_BYTES)
    body = None if head is None else _exactly(sender, int.from_bytes(head, "big"))
    return None if head is None or body is None else head + body


def _exactly(sender: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        more = sender.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
