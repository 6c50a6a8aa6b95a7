"""The tests of the handle and of its waits, with brokers in another process; and that no method is of this one."""

import inspect
from collections.abc import Iterator

import pytest

from ottla.testing.async_handle import KafkaAsync, KafkaGroupAsync
from ottla.testing.clock.handles import BrokerClock, BrokerClockAsync
from ottla.testing.faults.faults import Fault, Faults
from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.group_handle import KafkaGroup
from ottla.testing.handle import Kafka
from ottla.testing.remote import async_parts
from ottla.testing.remote.async_handle import RemoteKafkaAsync
from ottla.testing.remote.broker_process import BrokerProcess
from ottla.testing.remote.brokers import RemoteBroker, RemoteBrokers, RemotePartition
from ottla.testing.remote.clock import RemoteClock
from ottla.testing.remote.faults import RemoteFault, RemoteFaults
from ottla.testing.remote.groups import RemoteGroup
from ottla.testing.remote.handle import RemoteKafka, RemoteTopic
from ottla.testing.remote.surroundings import RemoteDisk, RemoteLinks
from ottla.testing.surroundings.disks import BrokerDisk
from ottla.testing.surroundings.handles import (
    KafkaBroker,
    KafkaBrokerAsync,
    KafkaBrokers,
    KafkaPartition,
    KafkaPartitionAsync,
)
from ottla.testing.surroundings.links import Links
from ottla.testing.topic_handle import KafkaTopic
from tests.kit.test_handle import (
    test_deleted_records_move_the_log_start,
    test_group_of_a_real_consumer_is_shown_decoded,
    test_keys_go_where_the_java_client_puts_them,
    test_records_beyond_the_limit_raise_and_are_not_cut_off,
    test_records_of_a_partition_are_in_order_of_its_log,
    test_records_of_transactions_are_read_by_isolation,
    test_topics_are_created_changed_and_deleted,
    test_what_a_real_producer_sent_is_shown_decoded,
    test_what_is_not_there_is_shown_as_such,
    test_what_was_produced_is_read_by_a_real_consumer,
)
from tests.kit.test_record_counts import (
    test_consumption_up_to_a_marker_is_reached,
    test_consumption_up_to_offsets_is_waited_for,
    test_records_stop_before_an_offset,
    test_wrong_ends_of_consumption_are_refused,
)
from tests.kit.test_waits import (
    test_error_of_a_condition_reaches_the_caller,
    test_group_that_is_not_there_is_explained_by_near_names,
    test_lag_names_each_partition_with_its_owner,
    test_leaders_generations_and_conditions_are_explained,
    test_member_that_does_not_poll_is_named_as_the_cause,
    test_missed_member_of_a_stable_group_is_counted,
    test_records_that_do_not_come_are_counted,
    test_records_that_were_delivered_and_not_committed_count,
    test_refused_producer_is_a_hint,
)

__all__ = [
    "test_consumption_up_to_a_marker_is_reached",
    "test_consumption_up_to_offsets_is_waited_for",
    "test_deleted_records_move_the_log_start",
    "test_error_of_a_condition_reaches_the_caller",
    "test_group_of_a_real_consumer_is_shown_decoded",
    "test_group_that_is_not_there_is_explained_by_near_names",
    "test_keys_go_where_the_java_client_puts_them",
    "test_lag_names_each_partition_with_its_owner",
    "test_leaders_generations_and_conditions_are_explained",
    "test_member_that_does_not_poll_is_named_as_the_cause",
    "test_missed_member_of_a_stable_group_is_counted",
    "test_records_beyond_the_limit_raise_and_are_not_cut_off",
    "test_records_of_a_partition_are_in_order_of_its_log",
    "test_records_of_transactions_are_read_by_isolation",
    "test_records_stop_before_an_offset",
    "test_records_that_do_not_come_are_counted",
    "test_records_that_were_delivered_and_not_committed_count",
    "test_refused_producer_is_a_hint",
    "test_topics_are_created_changed_and_deleted",
    "test_what_a_real_producer_sent_is_shown_decoded",
    "test_what_is_not_there_is_shown_as_such",
    "test_what_was_produced_is_read_by_a_real_consumer",
    "test_wrong_ends_of_consumption_are_refused",
]

OPTIONS = FixtureOptions(
    brokers=1,
    settings={},
    profile="test",
    isolation="reset",
    topics={},
    data="auto",
    deadline=20,
    leaks="warn",
    unused_faults="error",
    fault_seed=0,
)


@pytest.fixture(scope="module")
def process() -> Iterator[BrokerProcess]:
    process = BrokerProcess(OPTIONS, None)
    yield process
    process.stop()


@pytest.fixture
def handle(process: BrokerProcess) -> Iterator[Kafka]:
    yield process.kafka()
    process.reset()


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (Kafka, RemoteKafka),
        (KafkaTopic, RemoteTopic),
        (KafkaGroup, RemoteGroup),
        (KafkaBrokers, RemoteBrokers),
        (KafkaBroker, RemoteBroker),
        (KafkaPartition, RemotePartition),
        (Links, RemoteLinks),
        (BrokerDisk, RemoteDisk),
        (BrokerClock, RemoteClock),
        (Faults, RemoteFaults),
        (Fault, RemoteFault),
        (KafkaAsync, RemoteKafkaAsync),
        (KafkaGroupAsync, async_parts.RemoteGroupAsync),
        (KafkaBrokerAsync, async_parts.RemoteBrokerAsync),
        (KafkaPartitionAsync, async_parts.RemotePartitionAsync),
        (BrokerClockAsync, async_parts.RemoteClockAsync),
    ],
)
def test_no_method_looks_for_a_broker_of_this_process(here: type, there: type) -> None:
    """What is not of its own works by what is."""
    taken_over = [name for name in vars(here) if not name.startswith("__") and name not in vars(there)]

    sources = {name: inspect.getsource(code) for name in taken_over if (code := code_of(vars(here)[name])) is not None}

    reach_in = ("self._bed", "self._caller", "self.state", "self._rules", "self._dispatchers", "self._finished")
    public = {name: source for name, source in sources.items() if not name.startswith("_")}
    assert [name for name, source in public.items() if any(each in source for each in reach_in)] == []


def code_of(member: object) -> object | None:
    if isinstance(member, property):
        return member.fget
    return inspect.unwrap(member) if callable(member) else None
