"""`python -m tests.fuzz --inputs N [--seed S] [--before-login]`: hostile bytes for every decoder and for a live broker.

One input in twenty goes to the live broker, and two to what can be reached before a login; the rest to the decoders and
the record batches, half each. `--before-login`: all to the latter. A failure names the seed that repeats it.
"""

import argparse
import tempfile
from pathlib import Path

from tests.fuzz import exchanges, live, login, tls
from tests.protocol import fuzz_decoders, fuzz_records
from tests.served import ServedBroker

LIVE_SHARE = 20
LOGIN_SHARE = 10
# Of these, frames of a login and tokens of the exchanges have two fifths each, and TLS, which takes longest, one.
TLS_SHARE = 5
# By default 50 connections wait to be accepted, as at Apache Kafka; who finds no place tries again after a second.
PATIENT = {"socket.listen.backlog.size": "4096"}


def run(seed: int, inputs: int) -> None:
    to_broker = inputs // LIVE_SHARE
    to_logins = inputs // LOGIN_SHARE
    to_decoders = (inputs - to_broker - to_logins) // 2
    run_before_login(seed, to_logins)
    fuzz_decoders.run(seed, to_decoders)
    fuzz_records.run(seed, inputs - to_broker - to_logins - to_decoders)
    with tempfile.TemporaryDirectory() as directory, ServedBroker(Path(directory) / "data", PATIENT) as broker:
        live.run(broker, seed, to_broker)


def run_before_login(seed: int, inputs: int) -> None:
    to_tls = inputs // TLS_SHARE
    to_exchanges = (inputs - to_tls) // 2
    login.run(seed, inputs - to_tls - to_exchanges)
    exchanges.run(seed, to_exchanges)
    tls.run(seed, to_tls)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--before-login", action="store_true", help="only what can be sent without a login")
    options = parser.parse_args()
    (run_before_login if options.before_login else run)(options.seed, options.inputs)
    print(f"{options.inputs:,} inputs of seed {options.seed}: each was parsed or refused as documented")


if __name__ == "__main__":
    main()
