"""Buffers that go round between the loop and its connections."""

from ottla.broker.server.receive_buffers import BUFFER_BYTES, BUFFERS_MAX, LENT_MAX, ReceiveBuffers


def test_a_frame_that_fits_stays_where_it_began() -> None:
    buffers = ReceiveBuffers()
    shared = buffers.shared
    shared[100:105] = b"begin"

    lent = buffers.lend(shared, 100, 105, 200_000)

    assert lent is not None
    assert (bytes(lent[:5]), len(lent)) == (b"begin", 200_000)
    assert lent.obj is shared.obj
    assert buffers.shared.obj is not shared.obj


def test_a_frame_that_does_not_fit_behind_its_beginning_is_moved() -> None:
    buffers = ReceiveBuffers()
    shared = buffers.shared
    shared[-5:] = b"begin"

    lent = buffers.lend(shared, BUFFER_BYTES - 5, BUFFER_BYTES, 200_000)

    assert lent is not None
    assert (bytes(lent[:5]), len(lent)) == (b"begin", 200_000)
    assert buffers.shared is shared


def test_only_so_many_are_lent_and_what_came_back_goes_out_again() -> None:
    """I-27."""
    buffers = ReceiveBuffers()
    lent = [buffers.lend(buffers.shared, 0, 4, 100_000) for _ in range(LENT_MAX)]

    assert buffers.lend(buffers.shared, 0, 4, 100_000) is None
    assert lent[0] is not None
    memory = id(lent[0].obj)
    lent[0] = None
    buffers.give_back()
    lent[0] = buffers.lend(buffers.shared, 0, 4, 100_000)

    assert id(buffers.shared.obj) == memory
    assert len({id(view.obj) for view in [*lent, buffers.shared] if view is not None}) == LENT_MAX + 1


def test_what_is_kept_of_a_read_is_not_read_over() -> None:
    buffers = ReceiveBuffers()
    buffers.shared[:4] = b"kept"
    kept = buffers.shared[:4]

    buffers.renew()
    buffers.shared[:4] = b"next"

    assert bytes(kept) == b"kept"


def test_a_buffer_of_which_nothing_is_kept_stays() -> None:
    buffers = ReceiveBuffers()
    memory = id(buffers.shared.obj)
    kept = buffers.shared[:4]
    buffers.renew()
    assert id(buffers.shared.obj) != memory

    del kept
    buffers.renew()

    assert id(buffers.shared.obj) == memory


def test_there_is_always_a_shared_buffer() -> None:
    buffers = ReceiveBuffers()
    kept = []
    for _ in range(BUFFERS_MAX + 2):
        kept.append(buffers.shared[:1])
        buffers.renew()

    assert len({id(view.obj) for view in [*kept, buffers.shared]}) == BUFFERS_MAX + 3
    assert buffers.lend(buffers.shared, 0, 4, 100_000) is None


def test_a_frame_larger_than_a_buffer_gets_none() -> None:
    buffers = ReceiveBuffers()

    assert buffers.lend(buffers.shared, 0, 4, BUFFER_BYTES + 1) is None
