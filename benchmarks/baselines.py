"""The least that a machine must do for the same bytes: raw pipes and an echo server.

`python -m benchmarks.baselines NAME [FILE [PORT...]]` serves on a free port until it is terminated.

- `sink FILE`: receives an 8-byte length, then that many bytes; CRC-32C of each read, written to FILE.n; one byte back.
  With the ports of other sinks it passes all on to them, and waits for their byte first.
- `source FILE`: receives an 8-byte length; sends that many bytes of FILE from its start.
- `echo`: uvloop and `BufferedProtocol`; answers every 4-byte-size frame with 16 bytes.
- `idle`: a uvloop process that listens and does nothing.

A sink and a source with `--tls PEM` behind their file speak TLS, with the key and the certificate in that file.
"""

import asyncio
import os
import socket
import ssl
import struct
import sys
from collections.abc import Iterator
from typing import cast

from crc32c import crc32c

CHUNK = 1 << 20
REPLY = struct.pack(">ii", 12, 0) + bytes(8)


def sink(path: str, *others: str) -> None:
    buffer = memoryview(bytearray(CHUNK))
    pem = others[1] if others[:1] == ("--tls",) else None
    others = () if pem is not None else others
    for number, connection in enumerate(_accepted(pem)):
        # A file of its own for each, as Ottla gets a topic: the pages of a truncated file are used again, warm, and on
        # a virtual machine the first touch of others costs several times as much as all else done with the bytes.
        file = os.open(f"{path}.{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        length = _length(connection)
        remaining = struct.unpack(">q", length)[0]
        followers = [socket.create_connection(("127.0.0.1", int(port))) for port in others]
        for follower in followers:
            follower.send(length)
        while remaining:
            count = connection.recv_into(buffer)
            crc32c(buffer[:count])
            os.write(file, buffer[:count])
            for follower in followers:
                follower.sendall(buffer[:count])
            remaining -= count
        for follower in followers:
            follower.recv(1)
            follower.close()
        connection.send(b"\0")
        os.close(file)


def source(path: str, *tls: str) -> None:
    file = os.open(path, os.O_RDONLY)
    for connection in _accepted(tls[1] if tls else None):
        remaining = struct.unpack(">q", _length(connection))[0]
        position = 0
        while remaining:
            chunk = os.pread(file, min(CHUNK, remaining), position)
            connection.sendall(chunk)
            position += len(chunk)
            remaining -= len(chunk)


class Echo(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self._buffer = bytearray(1 << 18)
        self._held = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._held + nbytes
        start, replies = 0, 0
        while end - start >= 4:
            size = int.from_bytes(self._buffer[start : start + 4]) + 4
            if end - start < size:
                break
            start += size
            replies += 1
        self._buffer[: end - start] = self._buffer[start:end]
        self._held = end - start
        if replies:
            self._transport.write(REPLY * replies)


def _accepted(pem: str | None = None) -> Iterator[socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    _announce(listener.getsockname()[1])
    if pem is None:
        return iter(lambda: listener.accept()[0], None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return iter(lambda: context.wrap_socket(listener.accept()[0], server_side=True), None)


def _length(connection: socket.socket) -> bytes:
    # TLS takes no flags; the client sends the length in one record.
    is_tls = isinstance(connection, ssl.SSLSocket)
    return connection.recv(8) if is_tls else connection.recv(8, socket.MSG_WAITALL)


def _announce(port: int) -> None:
    print(f"ready bootstrap=127.0.0.1:{port}", flush=True)


async def _serve(protocol: type[asyncio.BaseProtocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    _announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main() -> None:
    name, *arguments = sys.argv[1:]
    if name in ("sink", "source"):
        {"sink": sink, "source": source}[name](*arguments)
    else:
        import uvloop

        uvloop.run(_serve({"echo": Echo, "idle": asyncio.Protocol}[name]))


if __name__ == "__main__":
    main()
