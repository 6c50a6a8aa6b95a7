"""What is wrong with the output of a pipeline is found."""

import pytest

from tests.histories.events import FinalLog
from tests.storm.settings import PARTITIONS, TOPIC
from tests.storm.transforms import ASSIGNED_PIPELINE, GROUP_PIPELINE, Fate, Output, complaints

INPUTS = {(TOPIC, index): FinalLog(0, ()) for index in range(PARTITIONS)}
INPUTS[TOPIC, 1] = FinalLog(0, tuple((offset, f"value-{offset}") for offset in range(4)))
FATES = {"first": Fate.COMMITTED, "second": Fate.COMMITTED, "third": Fate.ABORTED, "fourth": Fate.REPLACED}


def output(offset: int, transaction: str = "first", pipeline: str = GROUP_PIPELINE.name) -> Output:
    return Output(pipeline, 1, offset, transaction)


RIGHT = [output(0), output(1), output(2, "second"), output(3, "in doubt")]


def test_each_record_once_and_in_order_is_right() -> None:
    assert list(complaints(INPUTS, {1: RIGHT}, FATES)) == []


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        (RIGHT[:-1], "1 [3] are missing"),
        ([*RIGHT, output(0, "second")], "1 [0] are there twice"),
        ([*RIGHT, output(4)], "1 [4] were never read"),
        ([*RIGHT[:-1], output(3, "third")], "its transaction was aborted"),
        ([*RIGHT[:-1], output(3, "fourth")], "its transaction was replaced"),
        ([RIGHT[1], RIGHT[0], *RIGHT[2:]], "out of order"),
        ([*RIGHT, output(0, pipeline=ASSIGNED_PIPELINE.name)], "1 [0] were never read"),
    ],
)
def test_wrong_output_is_found(outputs: list[Output], complaint: str) -> None:
    (found,) = complaints(INPUTS, {1: outputs}, FATES)

    assert complaint in found


def test_commit_of_a_replaced_producer_is_found() -> None:
    fates = {**FATES, "fourth": Fate.COMMITTED_AFTER_ALL}

    assert list(complaints(INPUTS, {1: RIGHT}, fates)) == ["transaction fourth was committed after it was replaced"]


def test_output_is_read_as_it_was_written() -> None:
    assert Output.parse(RIGHT[3].to_value()) == RIGHT[3]
