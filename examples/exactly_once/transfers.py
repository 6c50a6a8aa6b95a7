"""Transfers between accounts, one transaction each: both records of it count, or neither.

python examples/exactly_once/transfers.py --bootstrap 127.0.0.1:9092 --transfers 1000

Every tenth is aborted after its first record, as by a program that finds the other account closed.
"""

import argparse
import asyncio
import json
import random
from typing import Any

from aiokafka import AIOKafkaProducer

from ottla.pipeline.clients import read_clients
from ottla.pipeline.jobs.options import bootstrap_option

TOPIC = "transfers"
TRANSACTIONAL_ID = "transfers"
ACCOUNTS = ("alice", "bruno", "clara", "dario")
ABORTED_EVERY = 10


def transfer(number: int, chance: random.Random) -> list[dict[str, Any]]:
    """What it takes from one account and gives to another."""
    giver, taker = chance.sample(ACCOUNTS, 2)
    cents = chance.randint(1, 10_000)
    return [
        {"transfer": number, "account": giver, "cents": -cents},
        {"transfer": number, "account": taker, "cents": cents},
    ]


def is_aborted(number: int) -> bool:
    return number % ABORTED_EVERY == ABORTED_EVERY - 1


async def send(bootstrap: str, transfers: int, **client: Any) -> None:
    """`client`: of TLS and a login, as aiokafka has them."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID, **client)
    await producer.start()
    chance = random.Random(1)
    try:
        for number in range(transfers):
            taken, given = transfer(number, chance)
            await producer.begin_transaction()
            await send_one(producer, taken)
            if is_aborted(number):
                await producer.abort_transaction()
            else:
                await send_one(producer, given)
                await producer.commit_transaction()
    finally:
        await producer.stop()


async def send_one(producer: Any, booking: dict[str, Any]) -> None:
    await producer.send_and_wait(TOPIC, key=booking["account"].encode(), value=json.dumps(booking).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    bootstrap_option(parser)
    parser.add_argument("--transfers", type=int, default=1000)
    arguments = parser.parse_args()
    client = read_clients(arguments).of_python()
    asyncio.run(send(arguments.bootstrap, arguments.transfers, **client))
