"""Producer ids for those who can wait for a block, and for those who cannot."""

from pathlib import Path

from ottla.broker.metadata.producer_ids import BLOCK_SIZE, CLAIMED_AHEAD
from tests.broker.wire import running_broker, until


async def test_ids_that_cannot_wait_come_from_a_block_at_hand(tmp_path: Path) -> None:
    """§13.3.4"""
    async with running_broker(tmp_path) as broker:
        assert broker.producer_ids.take_now() is None
        await until(broker, lambda: broker.producer_ids.take_now() is not None)

        given = [broker.producer_ids.take_now() for _ in range(BLOCK_SIZE - CLAIMED_AHEAD)]
        assert len(set(given)) == BLOCK_SIZE - CLAIMED_AHEAD
        assert None not in given


async def test_the_next_block_is_claimed_before_the_last_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.producer_ids.take()
        given = [broker.producer_ids.take_now() for _ in range(BLOCK_SIZE - CLAIMED_AHEAD + 1)]

        await until(broker, lambda: len(broker.producer_ids._blocks) == 2)

        given += [broker.producer_ids.take_now() for _ in range(CLAIMED_AHEAD + 5)]
        assert len(set(given)) == len(given)
        assert None not in given
