"""What brokers answer to the scripts of transactions, and where they mean to differ.

`python -m tests.differential.transcripts LEVEL` writes down what Apache Kafka 4.1 does at that level of the feature
`transaction.version`, in `tests/golden/kafka_4_1/transactions_LEVEL.json`.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from tests.differential import scripts_of_groups, scripts_of_partitions, scripts_of_producers
from tests.differential.brokers import kafka
from tests.differential.connection import Address
from tests.differential.readiness import until_coordinators_serve
from tests.differential.script import Script

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka_4_1"
SCRIPTS = (*scripts_of_producers.SCRIPTS, *scripts_of_partitions.SCRIPTS, *scripts_of_groups.SCRIPTS)

Transcripts = dict[str, list[str]]


class Differing(NamedTuple):
    """A line of a script that two brokers answer differently."""

    script: str
    theirs: str
    ours: str


_NO_REGISTRATION = "DescribeTransactions: NONE 'Empty' A/0 60000 ms not started nothing"
_INITIALIZED, _CONCURRENT = "InitProducerId v5 none:", "CONCURRENT_TRANSACTIONS none"
_LARGEST = "ListOffsets -3 isolation"
INTENDED = {
    # Records of `__transaction_state` belong to no transaction, so that no leader asks for it.
    Differing(
        "coordinators_topic",
        "AddPartitionsToTxn v5 add A/0 __transaction_state[0]: NONE __transaction_state-0 NONE",
        "AddPartitionsToTxn v5 add A/0 __transaction_state[0]: NONE __transaction_state-0 TOPIC_AUTHORIZATION_FAILED",
    ),
    Differing(
        "coordinators_topic",
        "DescribeTransactions: NONE 'Ongoing' A/0 60000 ms started __transaction_state[0]",
        _NO_REGISTRATION,
    ),
    # A batch of a transaction that has no producer would never be ended.
    Differing(
        "outside_a_transaction",
        "Produce v11 none from 0: t-0 NONE at 0",
        "Produce v11 none from 0: t-0 INVALID_RECORD",
    ),
    Differing("outside_a_transaction", "log t-0: 0 x", "nothing"),
    # The largest timestamp is that of a record which the reader may see and which is not deleted.
    Differing("readers", f"{_LARGEST} 1: NONE -1 leader epoch -1", f"{_LARGEST} 1: NONE 4 leader epoch 0"),
    Differing("deleted_beginning", f"{_LARGEST} 0: NONE 0 leader epoch 0", f"{_LARGEST} 0: NONE 1 leader epoch 0"),
    Differing("deleted_beginning", f"{_LARGEST} 1: NONE 0 leader epoch 0", f"{_LARGEST} 1: NONE -1 leader epoch -1"),
    # Kafka fails to build such a marker.
    Differing(
        "markers_by_hand",
        "WriteTxnMarkers ['abort A/-1 by 0']: A t-0 UNKNOWN_SERVER_ERROR",
        "WriteTxnMarkers ['abort A/-1 by 0']: A t-0 INVALID_PRODUCER_EPOCH",
    ),
    # With other partitions the coordinators of transactional ids would be others, which know nothing of them.
    Differing(
        "odd_coordinators",
        "CreatePartitions __transaction_state: NONE",
        "CreatePartitions __transaction_state: INVALID_REQUEST",
    ),
    # The guard of a batch that the partition has already, or has gone past, makes no other batch wait.
    *(
        Differing("late_duplicates", f"Produce {which} OUT_OF_ORDER_SEQUENCE_NUMBER", f"Produce {which} NONE at {at}")
        for which, at in (
            ("v9 A/0 from 2: t-0", 3),
            ("v11 B/0 from 2: t-1", 3),
            ("v11 B/0 from 1: t-2", 2),
            ("v11 plain B/0 from 1: t-3", 1),
        )
    ),
    # What has become too large for its topic is decided and ended all the same.
    Differing("lowered_bound", "EndTxn v4 commit A/0: UNKNOWN_SERVER_ERROR", "EndTxn v4 commit A/0: NONE"),
    Differing("lowered_bound", f"{_INITIALIZED} UNKNOWN_SERVER_ERROR none", f"{_INITIALIZED} {_CONCURRENT}"),
    Differing("lowered_bound", f"{_INITIALIZED} {_CONCURRENT}", f"{_INITIALIZED} NONE B/2"),
    # RE2 has a name for one byte, RE2J has none.
    Differing(
        "listed_by_pattern",
        r"ListTransactions v2 pattern '\\C': INVALID_REGULAR_EXPRESSION unknown [] nothing",
        r"ListTransactions v2 pattern '\\C': NONE unknown [] a A Empty",
    ),
}
# Kafka gives a producer the epoch of the one that has replaced it, if that has ended a transaction alike. Below level 2
# no record shows that case apart from an abort by the coordinator, which the producer may repeat.
INTENDED_AT_LEVEL_2 = {
    Differing(
        "replaced_by_the_older_protocol", f"EndTxn v5 {end}: NONE {pair}", f"EndTxn v5 {end}: PRODUCER_FENCED none"
    )
    for end, pair in (("commit A/0", "A/1"), ("abort B/0", "B/1"))
}


def transcripts(address: Address) -> Transcripts:
    until_coordinators_serve([address])
    return {play.__name__: _transcript(address, play) for play in SCRIPTS}


def _transcript(address: Address, play: Callable[[Script], None]) -> list[str]:
    script = Script(address, play.__name__.replace("_", "-"))
    try:
        play(script)
    finally:
        script.close()
    return script.lines


def recorded(level: int) -> Transcripts:
    """Of Apache Kafka."""
    found: Transcripts = json.loads(_golden(level).read_text())
    return found


def differing(ours: Transcripts, theirs: Transcripts) -> Iterator[Differing]:
    for name in ours | theirs:
        for one, other in zip_longest(ours.get(name, []), theirs.get(name, []), fillvalue="nothing"):
            if one != other:
                yield Differing(name, other, one)


def _golden(level: int) -> Path:
    return GOLDEN / f"transactions_{level}.json"


def main() -> None:
    level = int(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="ottla-differential-") as directory, kafka(directory, level) as address:
        found = transcripts(address)
    _golden(level).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
