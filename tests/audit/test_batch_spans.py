"""Spans of batches are those that their headers say, up to what is no whole batch."""

import pytest

from ottla.protocol.records.batch import iterate_batches
from ottla.testing.deliveries import batch_spans
from tests.audit.workload import records

BATCHES = records([b"a"]) + records([b"b", b"c"]) + records([b"d"])


def test_spans_are_those_of_the_headers() -> None:
    headers = [header for _, header in iterate_batches(BATCHES)]

    assert list(batch_spans(memoryview(BATCHES))) == [(each.base_offset, each.next_offset) for each in headers]
    assert len(headers) == 3


@pytest.mark.parametrize(
    ("buffer", "whole"),
    [(BATCHES[:-1], 2), (BATCHES[:30], 0), (b"", 0), (records([b"a"]) + bytes(80), 1)],
    ids=["cut off", "a part of a header", "nothing", "a length that no batch has"],
)
def test_spans_end_before_what_is_no_batch(buffer: bytes, whole: int) -> None:
    assert len(list(batch_spans(buffer))) == whole


def test_spans_end_before_another_magic() -> None:
    damaged = bytearray(BATCHES)
    damaged[16] = 1

    assert list(batch_spans(damaged)) == []
