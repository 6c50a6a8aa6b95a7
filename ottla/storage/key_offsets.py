"""The last offset of each key, as a compaction notes them: in many small dicts instead of a large one.

A dict that grows copies itself, and one that goes frees all it holds, in one call that does not give the interpreter to
another thread. With half a million keys that took the broker's loop some 100 ms.
"""

from hashlib import blake2b

EXACT_KEY_BYTES_MAX = 32
PARTS = 256


class KeyOffsets:
    def __init__(self) -> None:
        self._parts: list[dict[bytes, int]] = [{} for _ in range(PARTS)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, key: bytes, offset: int) -> None:
        """Offsets come in rising order."""
        digest = _digest(key)
        part = self._parts[hash(digest) % PARTS]
        before = len(part)
        part[digest] = offset
        self._count += len(part) - before

    def last(self, key: bytes) -> int:
        """-1 if there is none."""
        digest = _digest(key)
        return self._parts[hash(digest) % PARTS].get(digest, -1)

    def clear_some(self) -> bool:
        """Free a part of what is held; whether there is more."""
        if self._parts:
            self._parts.pop()
        return bool(self._parts)


def _digest(key: bytes) -> bytes:
    return key if len(key) < EXACT_KEY_BYTES_MAX else blake2b(key, digest_size=EXACT_KEY_BYTES_MAX).digest()
