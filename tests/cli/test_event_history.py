"""Events as they are read from the records of their topic."""

import json
from typing import Any

from ottla.cli.operations.event_history import Span, _decoded, _each_once, _is_in, _matters, _wanted_values
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, build_batch


def encoded(kind: str, seq: int = 0, **fields: Any) -> bytes:
    return json.dumps({"v": 1, "type": kind, "wall_ms": seq, "broker": 0, "run": 1, "seq": seq, **fields}).encode()


def batch(*values: bytes | None, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(offset=0, timestamp=0, key=b"g", value=value) for value in values]
    return bytes(build_batch(records, codec=codec))


def test_wanted_records_are_found_in_every_batch_of_a_chunk() -> None:
    left, joined = encoded("member_removed"), encoded("member_joined", reason='"type": "member_removed"')
    chunk = batch(left, None, joined) + batch(b"no event", left, codec=Codec.ZSTD)

    assert list(_wanted_values(chunk, lambda key, kind, _: (key, kind) == (b"g", b"member_removed"))) == [left, left]


def test_values_that_are_no_events_do_not_harm_the_others() -> None:
    event = encoded("member_joined")
    others = [b'{"type":"broken"', b'{"v":1},{"v":1}', b"[1]", b'{"v":2}']

    assert _decoded([event, event]) == [json.loads(event)] * 2
    for other in others:
        assert _decoded([event, other]) == [json.loads(event)], other


def test_copies_of_an_event_are_left_out() -> None:
    events = [json.loads(encoded("dropped", seq)) for seq in (0, 1, 1, 2)]

    assert [event["seq"] for event in _each_once(events)] == [0, 1, 2]


def test_span_has_its_first_moment_and_not_its_last() -> None:
    assert [ms for ms in range(5) if _is_in({"wall_ms": ms}, Span(since_ms=1, until_ms=3))] == [1, 2]


def test_of_states_only_those_without_members_are_decoded() -> None:
    stable, empty = (encoded("state_changed", to_state=state) for state in ("Stable", "Empty"))

    assert [_matters(b"state_changed", value) for value in (stable, empty)] == [False, True]
    assert not _matters(b"lag_sampled", encoded("lag_sampled"))
