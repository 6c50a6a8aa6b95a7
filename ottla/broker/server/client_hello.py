"""The first message of a TLS client, put together before OpenSSL sees any of it.

OpenSSL takes 70 KiB for a connection with its first byte, and makes room for a message as long as the first nine bytes
announce: 160 KiB. A client that begins to say hello and goes no further should cost what it has sent. So what is no
beginning of a ClientHello goes to OpenSSL at once, which refuses it; the rest waits here until the message is whole.
"""

# As it is sent, with the heads of records. Those of today's clients have 200 to 2,000.
HELLO_BYTES_MAX = 16 * 1024

_RECORD_HEAD, _MESSAGE_HEAD = 5, 4
# A record's first byte and the major version behind it; the first byte of the message.
_HANDSHAKE, _MAJOR_VERSION, _CLIENT_HELLO = b"\x16", b"\x03", b"\x01"


class HelloTooLong(Exception):
    """A sentence for the log."""


class ClientHello:
    __slots__ = ("_head", "_message_bytes", "_next_record", "received")

    def __init__(self) -> None:
        self.received = bytearray()
        # Where the next record begins, what the records before it have of the message, and its first four bytes.
        self._next_record = 0
        self._message_bytes = 0
        self._head = b""

    def add(self, data: memoryview) -> bool:
        """Whether OpenSSL gets now what was `received`, this included. Raises HelloTooLong."""
        self.received += data
        while not self._is_whole():
            start = self._next_record
            size = int.from_bytes(self.received[start + 3 : start + _RECORD_HEAD], "big")
            has_head = len(self.received) >= start + _RECORD_HEAD
            if self._is_foreign() or (has_head and not size):
                return True
            if max(start + size, self._announced()) > HELLO_BYTES_MAX:
                raise HelloTooLong(f"its ClientHello has more than {HELLO_BYTES_MAX} bytes")
            if not has_head or len(self.received) < start + _RECORD_HEAD + size:
                return False
            self._take_record(start + _RECORD_HEAD, size)
        return True

    def _is_whole(self) -> bool:
        return len(self._head) == _MESSAGE_HEAD and self._message_bytes >= _MESSAGE_HEAD + self._announced()

    def _announced(self) -> int:
        """The length of the message; 0 while it is not known."""
        return int.from_bytes(self._head[1:], "big") if len(self._head) == _MESSAGE_HEAD else 0

    def _is_foreign(self) -> bool:
        """Whether what begins there, as far as it is there, belongs to something else."""
        start = self._next_record
        kind, major = self.received[start : start + 1], self.received[start + 1 : start + 2]
        message = self._head[:1] or self.received[start + _RECORD_HEAD : start + _RECORD_HEAD + 1]
        pairs = ((_HANDSHAKE, kind), (_MAJOR_VERSION, major), (_CLIENT_HELLO, message))
        return not all(due.startswith(found) for due, found in pairs)

    def _take_record(self, start: int, size: int) -> None:
        """Its content, of so many bytes, is there."""
        missing = _MESSAGE_HEAD - len(self._head)
        self._head += bytes(self.received[start : start + min(missing, size)])
        self._message_bytes += size
        self._next_record = start + size
