"""`python -m tests.fuzz --inputs N [--seed S]`: hostile bytes for every decoder and for a live broker.

One input in twenty goes to the live broker, and one to a connection that has not logged in; the rest to the decoders
and the record batches, half each. A failure names the seed that repeats it.
"""

import argparse
import tempfile
from pathlib import Path

from tests.fuzz import live, login
from tests.protocol import fuzz_decoders, fuzz_records
from tests.served import ServedBroker

LIVE_SHARE = 20
LOGIN_SHARE = 20


def run(seed: int, inputs: int) -> None:
    to_broker = inputs // LIVE_SHARE
    to_logins = inputs // LOGIN_SHARE
    to_decoders = (inputs - to_broker - to_logins) // 2
    login.run(seed, to_logins)
    fuzz_decoders.run(seed, to_decoders)
    fuzz_records.run(seed, inputs - to_broker - to_logins - to_decoders)
    with tempfile.TemporaryDirectory() as directory, ServedBroker(Path(directory) / "data") as broker:
        live.run(broker, seed, to_broker)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run(options.seed, options.inputs)
    print(f"{options.inputs:,} inputs of seed {options.seed}: each was parsed or refused as documented")


if __name__ == "__main__":
    main()
