"""Megabytes at a time through a leader that keeps what it has just received for its followers."""

import random
from pathlib import Path

from ottla.broker.server.response_queue import REQUEST_BYTES_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.replication.recent_appends import COPIED_BYTES_MAX, HELD_BYTES_MAX
from tests.broker.clusters import create_topic, until
from tests.broker.replicas import ALL, in_sync, leader_of, same_everywhere, three_brokers
from tests.broker.wire import Client, batch, client_of, produce_request

SIZES = (10, COPIED_BYTES_MAX - 200, COPIED_BYTES_MAX + 1, 100_000, 900_000)


def requests_of(chance: random.Random, count: int) -> list[ProduceRequest]:
    """Every batch has other bytes: a buffer that is used again too early would show."""
    return [produce_request("t", batch(chance.randbytes(chance.choice(SIZES))), acks=-1) for _ in range(count)]


async def outcomes(client: Client, count: int) -> list[ErrorCode]:
    answers = [(await client.receive(ProduceResponse, 9)) for _ in range(count)]
    return [ErrorCode(answer.responses[0].partition_responses[0].error_code) for answer in answers]


async def test_what_followers_get_from_memory_is_what_the_leader_wrote(tmp_path: Path) -> None:
    """R12"""
    chance = random.Random(12)
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        leader = leader_of(cluster)
        async with client_of(leader) as one, client_of(leader) as other:
            for _ in range(6):
                for client in (one, other):
                    for request in requests_of(chance, 8):
                        client.send(request, 9)
                assert await outcomes(one, 8) == await outcomes(other, 8) == [ErrorCode.NONE] * 8

        await same_everywhere(cluster, 96)
        recent = leader.replicas.shared_reads.recent
        assert recent.held_bytes == 0, "what all followers have is let go"


async def test_producer_is_held_when_too_far_ahead_of_a_follower(tmp_path: Path) -> None:
    """R07: the follower that stands still leaves the ISR, and everything is acknowledged."""
    size, count = 500_000, 63
    async with three_brokers(tmp_path, replica_lag_time_max_ms=1500) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        leader = leader_of(cluster)
        cluster.brokers[2].replicas.stop_fetching()
        waiting = leader.replicas.delayed_produce
        async with client_of(leader) as client:
            for number in range(count):
                client.send(produce_request("t", batch(bytes([number]) * size), acks=-1), 9)
            await until(lambda: len(waiting) * size >= REQUEST_BYTES_MAX - size)

            assert len(waiting) * size < REQUEST_BYTES_MAX + 2 * size
            assert leader.replicas.shared_reads.recent.held_bytes <= HELD_BYTES_MAX
            assert await outcomes(client, count) == [ErrorCode.NONE] * count

        await in_sync(cluster, 0, 1)
        assert leader.replicas.shared_reads.recent.held_bytes == 0
