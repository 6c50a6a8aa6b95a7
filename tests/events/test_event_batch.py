"""Batches of events are what any other code would have built of the same records."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.events.event_batch import EventBatch
from ottla.protocol.records.record import Record, build_batch

NOW_MS = 1_700_000_000_000
EVENTS = st.tuples(
    st.integers(NOW_MS - 3_600_000, NOW_MS + 3_600_000), st.binary(max_size=300), st.binary(max_size=3000)
)


@given(st.lists(EVENTS, min_size=1, max_size=20))
def test_a_batch_is_that_of_its_records(events: list[tuple[int, bytes, bytes]]) -> None:
    batch = EventBatch()
    for wall_ms, key, value in events:
        batch.add(wall_ms, key, value)

    assert len(batch) == len(events)
    assert batch.build() == build_batch(Record(timestamp=ms, key=key, value=value) for ms, key, value in events)
