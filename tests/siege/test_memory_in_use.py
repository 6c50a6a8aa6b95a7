"""What the siege counts as in use: memory of both allocators, and nothing that was freed."""

from tests.siege.memory_in_use import bytes_in_use

SMALL, LARGE = 100_000, 8 << 20


def test_objects_and_buffers_count_until_they_are_freed() -> None:
    before = bytes_in_use()
    objects = [object() for _ in range(SMALL)]
    with_objects = bytes_in_use()
    buffer = bytearray(LARGE)
    with_buffer = bytes_in_use()
    del objects, buffer
    after = bytes_in_use()

    assert with_objects - before >= SMALL * object().__sizeof__()
    assert LARGE <= with_buffer - with_objects < LARGE + (1 << 20)
    assert abs(after - before) < 1 << 20
