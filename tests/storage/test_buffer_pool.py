"""A buffer is handed out again when its last view is gone, and never before."""

import threading

import pytest

from ottla.storage.buffer_pool import LARGE_BYTES, POOLS, BufferPool, ReadBuffers

SIZES = [size for size, _ in POOLS]
KEPT = sum(count for _, count in POOLS)


def test_a_buffer_comes_back_when_its_last_view_is_gone() -> None:
    buffers = ReadBuffers()
    view = buffers.take(LARGE_BYTES)
    first = id(view.obj)
    part = view[10:20]
    del view

    assert id(buffers.take(LARGE_BYTES).obj) != first

    del part
    assert id(buffers.take(LARGE_BYTES).obj) == first


def test_what_was_handed_out_is_not_written_over() -> None:
    buffers = ReadBuffers()
    answers = []
    for n in range(3 * KEPT):
        view = buffers.take(LARGE_BYTES)
        view[:] = bytes([n]) * LARGE_BYTES
        answers.append(view[5:])

    assert [bytes(answer[:1]) for answer in answers] == [bytes([n]) for n in range(3 * KEPT)]


def test_one_buffer_serves_reads_that_follow_each_other() -> None:
    buffers = ReadBuffers()
    seen = set()
    for _ in range(20):
        seen.add(id(buffers.take(LARGE_BYTES).obj))

    assert len(seen) == 1


def test_a_large_read_does_not_take_the_buffer_of_a_small_one() -> None:
    """A consumer that asks for a megabyte shall not make the broker hold four times as much."""
    buffers = ReadBuffers()

    assert len(memoryview(buffers.take(SIZES[0]).obj)) == SIZES[0]
    assert len(memoryview(buffers.take(SIZES[0] + 1).obj)) == SIZES[1]


@pytest.mark.parametrize("size", [1, LARGE_BYTES - 1, SIZES[-1] + 1])
def test_small_and_huge_buffers_are_fresh(size: int) -> None:
    view = ReadBuffers().take(size)

    assert view.nbytes == size
    assert not any(view)


def test_threads_do_not_share_buffers() -> None:
    buffers = ReadBuffers()
    mine = id(buffers.take(LARGE_BYTES).obj)
    theirs: list[int] = []
    thread = threading.Thread(target=lambda: theirs.append(id(buffers.take(LARGE_BYTES).obj)))
    thread.start()
    thread.join()

    assert theirs != [mine]


def test_buffers_that_no_read_has_needed_since_are_let_go() -> None:
    pool = BufferPool(100, 4)
    views = [pool.take() for _ in range(4)]
    pool.release_idle()
    assert pool.count == 4, "all were needed"

    views = views[:2]
    pool.release_idle()
    assert pool.count == 2, "two are in use"

    views.clear()
    assert pool.take() is not None
    pool.release_idle()
    assert pool.count == 1, "one was needed"
    pool.release_idle()
    assert pool.count == 0


def test_a_buffer_in_use_is_kept_however_long_that_takes() -> None:
    pool = BufferPool(100, 4)
    first, second = pool.take(), pool.take()
    assert second is not None
    second[:4] = b"kept"
    del first
    for _ in range(3):
        pool.release_idle()

    assert pool.count == 1
    assert bytes(second[:4]) == b"kept"
    again = pool.take()
    assert again is not None
    assert again.obj is not second.obj
