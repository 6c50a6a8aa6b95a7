"""The tests of links, disks, brokers and the clock, with brokers in another process."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.testing.handle import Kafka
from ottla.testing.remote.async_handle import RemoteKafkaAsync
from ottla.testing.remote.broker_process import BrokerProcess
from tests.kit.clock.test_brokers import (
    test_next_timer_runs_and_no_further,
    test_rate_lets_time_pass_by_itself_and_spares_the_living,
    test_wall_clock_of_one_broker_drifts,
    test_wall_clock_of_one_broker_is_skewed,
    test_what_cannot_be_meant_is_refused,
)
from tests.kit.clock.test_included import test_followers_that_are_in_sync_stay_so
from tests.kit.clusters import SETTINGS, Replicated
from tests.kit.test_broken_links import (
    test_a_broker_that_is_none_of_the_clusters_is_named,
    test_all_brokers_are_killed_and_start_again,
    test_broker_that_loses_the_store_is_fenced,
    test_clients_that_are_cut_off_get_no_answer,
    test_cut_with_reset_breaks_connections_at_once,
    test_isolated_leader_acknowledges_what_will_be_lost,
    test_killed_broker_starts_again_later,
    test_links_that_there_are_not,
    test_narrow_link_makes_a_follower_late,
    test_paused_broker_accepts_and_does_not_answer,
    test_paused_link_loses_nothing,
    test_slow_store_is_waited_for,
    test_stopped_broker_hands_over_what_it_leads,
)
from tests.kit.test_cluster_faults import (
    test_asymmetric_cut_leaves_too_few_replicas,
    test_damaged_batch_is_refused_and_copied_again,
    test_failed_sync_takes_the_log_offline_until_a_restart,
    test_full_disk_of_a_follower_takes_it_out_of_the_isr,
    test_full_disk_of_the_leader_moves_the_partition,
    test_rule_about_fetch_leaves_followers_alone,
    test_slow_follower_leaves_the_isr_and_comes_back,
    test_torn_tail_is_cut_off_and_copied_again,
)
from tests.kit.test_healed_worlds import test_disks_refuse_what_cannot_be, test_what_is_in_force_is_shown
from tests.kit.test_power_cuts import (
    test_only_replica_without_power_loses_what_was_not_synced,
    test_synced_records_survive,
)
from tests.shared.test_same_handle import OPTIONS, handle, process

__all__ = [
    "handle",
    "process",
    "test_a_broker_that_is_none_of_the_clusters_is_named",
    "test_all_brokers_are_killed_and_start_again",
    "test_asymmetric_cut_leaves_too_few_replicas",
    "test_broker_that_loses_the_store_is_fenced",
    "test_clients_that_are_cut_off_get_no_answer",
    "test_cut_with_reset_breaks_connections_at_once",
    "test_damaged_batch_is_refused_and_copied_again",
    "test_disks_refuse_what_cannot_be",
    "test_failed_sync_takes_the_log_offline_until_a_restart",
    "test_followers_that_are_in_sync_stay_so",
    "test_full_disk_of_a_follower_takes_it_out_of_the_isr",
    "test_full_disk_of_the_leader_moves_the_partition",
    "test_isolated_leader_acknowledges_what_will_be_lost",
    "test_killed_broker_starts_again_later",
    "test_links_that_there_are_not",
    "test_narrow_link_makes_a_follower_late",
    "test_next_timer_runs_and_no_further",
    "test_only_replica_without_power_loses_what_was_not_synced",
    "test_paused_broker_accepts_and_does_not_answer",
    "test_paused_link_loses_nothing",
    "test_rate_lets_time_pass_by_itself_and_spares_the_living",
    "test_rule_about_fetch_leaves_followers_alone",
    "test_slow_follower_leaves_the_isr_and_comes_back",
    "test_slow_store_is_waited_for",
    "test_stopped_broker_hands_over_what_it_leads",
    "test_synced_records_survive",
    "test_torn_tail_is_cut_off_and_copied_again",
    "test_wall_clock_of_one_broker_drifts",
    "test_wall_clock_of_one_broker_is_skewed",
    "test_what_cannot_be_meant_is_refused",
    "test_what_is_in_force_is_shown",
]


@pytest.fixture(scope="module")
def three_process() -> Iterator[BrokerProcess]:
    process = BrokerProcess(replace(OPTIONS, brokers=3, settings=SETTINGS, unsynced=True), None)
    yield process
    process.stop()


@pytest.fixture
def three(three_process: BrokerProcess) -> Iterator[Kafka]:
    yield three_process.kafka()
    three_process.reset()


@pytest.fixture
def kafka(three: Kafka) -> Kafka:
    return three


@pytest.fixture
def cluster(kafka: Kafka) -> Replicated:
    return Replicated(kafka)


async def test_coroutines_break_links_disks_and_clocks(three_process: BrokerProcess, kafka: Kafka) -> None:
    there = RemoteKafkaAsync(three_process.control)
    await there.clock.freeze()
    await there.clock.skew(0, "-5s")
    await there.clock.drift(1, 2)
    await there.clock.set_rate(2)
    await there.clock.include({"replication"})
    assert await there.clock.included() == kafka.clock.included == {"replication"}
    await there.brokers[0].isolate()
    there.links.delay(1, 2, ms=0.5)
    there.disk(2).slow_fsync(1.5)

    assert await there.clock.rate() == 2
    assert (1, 2, 0.5) in [(source, target, way.delay_ms) for source, target, way in kafka.links.in_force()]
    assert (0, "store") in [(source, target) for source, target, way in kafka.links.in_force() if way.is_cut]
    assert kafka.disk(2).in_force().fsync_ms == 1.5
    there.links.heal()
    assert kafka.links.in_force() == []
    fired = await there.clock.run_next("retention")
    assert "retention" in [each.kind for each in fired]
