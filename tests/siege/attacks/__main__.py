"""`python -m tests.siege.attacks NAME …`: one attack. Prints, as JSON, what it has done."""

import argparse
import json
import os
import random
import resource
from pathlib import Path

from tests.siege.attacks import ATTACKS
from tests.siege.attacks.attack import Target
from tests.siege.wire import address_of

# An attacker has machines of its own. Here it shares processors with the broker and the clients, and gives way.
NICE = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.siege.attacks", description=__doc__)
    parser.add_argument("name", choices=sorted(ATTACKS))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--login", required=True)
    parser.add_argument("--tls", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", required=True)
    options = parser.parse_args()
    os.nice(NICE)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    chance = random.Random(f"{options.seed}/{options.name}")
    addresses = (address_of(each) for each in (options.bootstrap, options.login, options.tls))
    target = Target(*addresses, options.pid, options.data_dir, options.seconds, chance)
    attack = ATTACKS[options.name](target)
    try:
        attack.run()
    finally:
        attack.clean_up()
    print(json.dumps(attack.done))


if __name__ == "__main__":
    main()
