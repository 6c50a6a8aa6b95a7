"""Producers of a partition beside a dumb model of the rules (§13.6): whatever comes, both answer the same."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import InvalidProducerEpoch, KafkaError, OutOfOrderSequenceNumber
from ottla.protocol.records.batch import BatchHeader
from ottla.storage.producer_state import (
    DuplicateOf,
    ProducerStateManager,
)
from tests.storage.producers import LAST, Partition, batch


@dataclass
class Model:
    """Everything ever appended, in a list; the rules of §13.6.2 read off it one by one."""

    appended: list[tuple[BatchHeader, int]] = field(default_factory=list)
    log_end_offset: int = 0

    def append(self, header: BatchHeader) -> object:
        own = [(known, at) for known, at in self.appended if known.producer_id == header.producer_id]
        epoch = own[-1][0].producer_epoch if own else None
        current = [entry for entry in own if entry[0].producer_epoch == epoch]
        for known, at in current[-5:]:
            if known.producer_epoch == header.producer_epoch and sequences(known) == sequences(header):
                return DuplicateOf(at, at + known.last_offset_delta, known.max_timestamp)
        if epoch is not None and header.producer_epoch < epoch:
            return InvalidProducerEpoch
        if epoch is not None and header.producer_epoch > epoch and header.base_sequence != 0:
            return OutOfOrderSequenceNumber
        if epoch == header.producer_epoch and header.base_sequence != (sequences(current[-1][0])[-1] + 1) % (1 << 31):
            return OutOfOrderSequenceNumber
        self.appended.append((header, self.log_end_offset))
        self.log_end_offset += header.record_count
        return self.log_end_offset - header.record_count


def sequences(header: BatchHeader) -> list[int]:
    return [(header.base_sequence + index) % (1 << 31) for index in range(header.record_count)]


NEAR_THE_WRAP = [LAST - 2, LAST - 1, LAST, 0, 1, 2, 3, 4]
tries = st.builds(
    batch,
    st.sampled_from(NEAR_THE_WRAP),
    st.integers(1, 3),
    producer=st.integers(1, 2),
    epoch=st.integers(0, 2),
    timestamp=st.integers(0, 3),
)


@settings(max_examples=200)
@given(st.data())
def test_any_sequence_of_batches_is_answered_as_the_rules_say(data: st.DataObject):
    """I-10, with retries of whatever was sent before and restarts that keep the state."""
    partition, model, sent = Partition(), Model(), [batch(0)]
    for _ in range(data.draw(st.integers(1, 25))):
        follows = [header._replace(base_sequence=header.last_sequence + 1 & LAST) for header in sent[-4:]]
        header = data.draw(st.one_of(st.sampled_from(follows), st.sampled_from(sent), tries))
        sent.append(header)
        assert answer(partition, header) == model.append(header)
        if data.draw(st.booleans()):
            partition.producers.confirm()


def answer(partition: Partition, header: BatchHeader) -> object:
    try:
        return partition.append(header)
    except KafkaError as error:
        return type(error)


@given(st.lists(tries, max_size=20))
def test_a_snapshot_keeps_what_decides_about_the_next_batch(headers: list[BatchHeader]):
    partition = Partition()
    for header in headers:
        answer(partition, header)
    loaded = ProducerStateManager()
    loaded.load(partition.producers.snapshot_bytes(), 0, 0)

    assert loaded.snapshot_bytes() == partition.producers.snapshot_bytes()
    assert {
        producer: state._replace(batches=state.batches[-1:]) for producer, state in partition.producers.states.items()
    } == dict(loaded.states)
