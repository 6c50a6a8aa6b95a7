"""`python -m tests.storm.clients KIND --name N --bootstrap B --history FILE`: one client, until SIGTERM."""

import argparse
import importlib
import logging
from pathlib import Path

from tests.histories.files import HistoryFile
from tests.storm.clients.client import ENDLESS_MS, Client
from tests.storm.clients.watchdog import stopping_at_sigterm

KINDS = (
    "aiokafka_member",
    "aiokafka_producer",
    "aiokafka_transformer",
    "confluent_member",
    "confluent_producer",
    "confluent_transformer",
    "watcher",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.storm.clients", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--name", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--records-per-s", type=int, default=200)
    parser.add_argument("--delivery-timeout-ms", type=int, default=ENDLESS_MS)
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(name)s: %(message)s", datefmt="%H:%M:%S")
    stopping = stopping_at_sigterm()
    with HistoryFile(options.history) as history:
        client = Client(
            options.name,
            options.bootstrap,
            options.records_per_s,
            options.delivery_timeout_ms,
            history,
            stopping,
            options.history.parent,
        )
        importlib.import_module(f"tests.storm.clients.{options.kind}").run(client)


if __name__ == "__main__":
    main()
