"""Orders to a topic, as a shop would send them: JSON values, keyed by customer.

python examples/orders_pipeline/orders.py --bootstrap 127.0.0.1:9092 --orders 10000
"""

import argparse
import asyncio
import json
import random
from typing import Any

from aiokafka import AIOKafkaProducer

from ottla.pipeline.clients import read_clients
from ottla.pipeline.jobs.options import bootstrap_option

TOPIC = "orders"
ITEMS = {"tea": 350, "coffee": 420, "cake": 510, "water": 180}


def order(number: int, chance: random.Random) -> dict[str, Any]:
    item = chance.choice(list(ITEMS))
    return {
        "order": number,
        "customer": f"c{chance.randrange(200):03}",
        "item": item,
        "pieces": chance.randint(1, 5),
        "price_cents": ITEMS[item],
    }


async def send(bootstrap: str, orders: int, **client: Any) -> None:
    """`client`: of TLS and a login, as aiokafka has them."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, **client)
    await producer.start()
    chance = random.Random(1)
    try:
        for number in range(orders):
            made = order(number, chance)
            await producer.send(TOPIC, key=made["customer"].encode(), value=json.dumps(made).encode())
    finally:
        await producer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    bootstrap_option(parser)
    parser.add_argument("--orders", type=int, default=10_000)
    arguments = parser.parse_args()
    client = read_clients(arguments).of_python()
    asyncio.run(send(arguments.bootstrap, arguments.orders, **client))
