"""What the siege counts as in use: memory of both allocators, and nothing that was freed."""

import subprocess
import sys

SMALL, LARGE = 100_000, 8 << 20
# In a process of its own: what other tests have left running allocates and frees beside it.
PROGRAM = f"""
from tests.siege.memory_in_use import bytes_in_use

before = bytes_in_use()
objects = [object() for _ in range({SMALL})]
with_objects = bytes_in_use()
buffer = bytearray({LARGE})
with_buffer = bytes_in_use()
del objects, buffer
print(before, with_objects, with_buffer, bytes_in_use())
"""


def test_objects_and_buffers_count_until_they_are_freed() -> None:
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    before, with_objects, with_buffer, after = map(int, printed.split())

    assert with_objects - before >= SMALL * object().__sizeof__()
    assert LARGE <= with_buffer - with_objects < LARGE + (1 << 20)
    assert abs(after - before) < 1 << 20
