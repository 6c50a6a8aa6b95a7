"""The idempotent producer of clusters: how many batches it has under way together."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.simulation.cluster.producing import Batch, IdempotentProducer

PLACE = ("alpha", 0)
# Before the batches that are sent.
END_OFFSET = 10


class Leader:
    """Acknowledges everything, when all that was sent together is there."""

    def __init__(self) -> None:
        self.end_offset, self.under_way, self.together = END_OFFSET, 0, [0]

    async def call(self, request: Any, *_: Any, **__: Any) -> ProduceResponse:
        self.under_way += 1
        self.together[-1] = self.under_way
        await asyncio.sleep(0)
        self.under_way -= 1
        if not self.under_way:
            self.together.append(0)
        self.end_offset += 1
        answer = PartitionProduceResponse(
            index=PLACE[1], error_code=int(ErrorCode.NONE), base_offset=self.end_offset - 1
        )
        return ProduceResponse(responses=[TopicProduceResponse(name=PLACE[0], partition_responses=[answer])])


def world_with(*, deleted_before: int, expires_producers: bool) -> Any:
    return SimpleNamespace(
        topics=[PLACE[0]],
        plan=SimpleNamespace(uses_topic_ids=False, expires_producers=expires_producers),
        loop=SimpleNamespace(create_task=asyncio.ensure_future),
        trace=SimpleNamespace(note=lambda *_: None),
        judge=SimpleNamespace(counts={"acknowledged": 0}),
        record=lambda _: None,
        check_is_committed=lambda *_: None,
        deleted_before=lambda _: deleted_before,
        now_us=1,
    )


@pytest.mark.parametrize(
    ("deleted_before", "expires_producers", "together"),
    [
        pytest.param(END_OFFSET - 1, False, [3], id="last batch kept"),
        pytest.param(END_OFFSET, False, [1, 2], id="all its batches deleted"),
        pytest.param(END_OFFSET - 1, True, [1, 1, 1], id="producers expire"),
    ],
)
def test_several_are_sent_where_the_producer_is_known(
    deleted_before: int, expires_producers: bool, together: list[int]
) -> None:
    """A batch that overtakes a refused one has to be refused too (§13.6.2)."""
    world = world_with(deleted_before=deleted_before, expires_producers=expires_producers)
    producer, leader = IdempotentProducer(world, random.Random(0), "once"), Leader()
    producer.acknowledged_to[PLACE] = END_OFFSET
    producer.waiting.extend(Batch(PLACE, sequence, [f"once/{sequence}"], b"") for sequence in range(3))

    async def find_leader(_: Any) -> tuple[Any, int]:
        return leader, 0

    producer.client.leader = find_leader  # type: ignore[method-assign]
    asyncio.run(producer._send_all())

    assert [each for each in leader.together if each] == together
