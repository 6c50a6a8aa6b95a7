"""What the siege counts as in use: memory of both allocators, and nothing that was freed."""

from tests.siege.memory_in_use import bytes_in_use

SMALL, LARGE = 500_000, 8 << 20
# What threads of clients that are closed already may take or give back during it.
OTHERS = 1 << 20


def test_objects_and_buffers_count_until_they_are_freed() -> None:
    before = bytes_in_use()
    objects = [object() for _ in range(SMALL)]
    with_objects = bytes_in_use()
    buffer = bytearray(LARGE)
    with_buffer = bytes_in_use()
    del objects, buffer
    after = bytes_in_use()

    assert with_objects - before > SMALL * object().__sizeof__() - OTHERS
    assert abs(with_buffer - with_objects - LARGE) < OTHERS
    assert abs(after - before) < OTHERS
