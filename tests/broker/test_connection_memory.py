"""Who is aborted when connections hold too much memory together, and how much fetches may take."""

from ottla.broker.server.connection_memory import ConnectionMemory


class Holder:
    def __init__(self, memory: ConnectionMemory) -> None:
        self.memory = memory
        self.unread_bytes = 0
        self.counted_bytes = 0
        self.aborted = False

    def hold(self, size_bytes: int) -> None:
        self.unread_bytes = self.counted_bytes = size_bytes
        self.memory.set(self, size_bytes)

    def count_unread(self) -> bool:
        has_read = self.unread_bytes < self.counted_bytes
        if has_read:
            self.hold(self.unread_bytes)
        return has_read

    def abort(self, reason: object, why: str) -> None:
        self.aborted = True


def holders(memory: ConnectionMemory, count: int) -> list[Holder]:
    return [Holder(memory) for _ in range(count)]


def test_the_one_without_progress_for_longest_is_aborted() -> None:
    memory = ConnectionMemory(bytes_max=100)
    every = holders(memory, 3)
    for holder in every[:2]:
        holder.hold(40)
    every[0].hold(41)

    every[2].hold(40)

    assert [holder.aborted for holder in every] == [False, True, False]
    assert (memory.held_bytes, len(memory)) == (81, 2)


def test_a_reader_that_has_read_something_is_spared() -> None:
    memory = ConnectionMemory(bytes_max=100)
    every = holders(memory, 3)
    every[0].hold(40)
    every[1].hold(40)
    every[0].unread_bytes = 39

    every[2].hold(40)

    assert [holder.aborted for holder in every] == [False, True, False]
    assert memory.held_bytes == 79


def test_slow_readers_are_aborted_too_if_nothing_else_helps() -> None:
    memory = ConnectionMemory(bytes_max=100)
    every = holders(memory, 3)
    for holder in every[:2]:
        holder.hold(40)
        holder.unread_bytes = 39

    every[2].hold(60)

    assert [holder.aborted for holder in every] == [True, False, False]
    assert memory.held_bytes == 99


def test_one_connection_alone_may_hold_more() -> None:
    memory = ConnectionMemory(bytes_max=100)
    (holder,) = holders(memory, 1)

    holder.hold(1000)
    assert not holder.aborted
    holder.hold(0)

    assert (memory.held_bytes, len(memory)) == (0, 0)


def test_fetch_room_shrinks_with_what_is_held() -> None:
    memory = ConnectionMemory(bytes_max=100, fetch_room_bytes=50)
    (holder,) = holders(memory, 1)
    rooms = [memory.fetch_room()]
    for size_bytes in (20, 60, 0):
        holder.hold(size_bytes)
        rooms.append(memory.fetch_room())

    assert rooms == [50, 30, 0, 50]
