"""Awkward requests are answered as Apache Kafka answers them, or differently for a stated reason."""

import json
from pathlib import Path

from tests.broker.asking import running
from tests.broker.awkward_answers import answers

RECORDED = Path(__file__).parents[1] / "golden" / "kafka_4_1" / "answers.json"

# What is answered here, and why.
DIFFERENCES = {
    # Every question has its answer, also where it is the same question twice.
    "delete a topic twice": [42, 42],
    "find offsets of a partition twice": [42, 42],
    # Of two places that a partition is to go to, neither is taken for the last word.
    "move a partition twice": [0, 42, 42],
    # Kafka stores unknown properties; a misspelt one is better refused.
    "alter a broker's unknown config": [42],
    # Where Kafka fails, or never answers, the error that its other answers have for the like.
    "change a config in an unknown way": [42],
    "metadata of neither name nor id": [0, 17],
    "produce null": [2],
}


async def test_awkward_requests_are_answered_as_kafka_answers_them(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as asking:
        found = await answers(asking.broker.bootstrap)

    assert found == json.loads(RECORDED.read_text()) | DIFFERENCES
