"""What a test does to groups without a client: removes members, has them rebalance, sets offsets, deletes groups."""

import pytest

from ottla.coordinator.facts import Cause
from ottla.protocol.errors import KafkaError, UnknownTopicOrPartition
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.group_handle import KafkaGroup
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.members import consumer, polled


def await_stable(shop: KafkaGroup, generation: int, poll: object) -> None:
    """A member rebalances when it polls."""
    while shop.generation <= generation or shop.state != "Stable":
        poll.poll(0.05)  # type: ignore[attr-defined]


def test_removed_member_comes_back_as_another_one(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    shop = handle.group("shop")
    with consumer(handle, "shop", "orders", **{"client.id": "c-1"}) as member:
        while shop.state != "Stable":
            member.poll(0.05)
        (before,) = shop.members

        assert shop.evict("c-1", "deployed again") == before.member_id

        assert shop.members == ()
        while shop.state != "Stable" or not shop.members:
            member.poll(0.05)
        assert shop.members[0].member_id != before.member_id
        assert any((each.removed or {}).get(before.member_id) is Cause.MEMBER_LEFT for each in shop.history)


def test_member_is_named_by_any_of_its_names(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    shop = handle.group("shop")
    with consumer(handle, "shop", "orders", **{"group.instance.id": "shop-1"}) as member:
        for name in ("shop-1", None):
            while shop.state != "Stable" or not shop.members:
                member.poll(0.05)
            member_id = shop.members[0].member_id
            assert shop.evict(name or member_id) == member_id

    with pytest.raises(KafkaError, match="there is no member 'somebody else' in group 'shop', only "):
        shop.evict("somebody else")


def test_rebalance_is_asked_for(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=2)
    shop = handle.group("shop")
    with consumer(handle, "shop", "orders") as member:
        while shop.state != "Stable":
            member.poll(0.05)
        generation, before = shop.generation, [each.member_id for each in shop.members]

        shop.rebalance()
        await_stable(shop, generation, member)

        assert shop.generation == generation + 1
        assert [each.member_id for each in shop.members] == before
        assert shop.history[-1].cause is Cause.REQUESTED

    shop.wait_until_empty()
    with pytest.raises(KafkaError, match="group 'shop' has no members"):
        shop.rebalance()


def test_offsets_are_set_and_read_from(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    handle.produce("orders", [b"one", b"two", b"three"])
    shop = handle.group("shop")

    shop.set_offsets("orders", {0: 2})

    assert shop.lag("orders") == {0: 1}
    with consumer(handle, "shop", "orders", **{"enable.auto.commit": False}) as member:
        assert polled(member, 1) == [b"three"]
        with pytest.raises(KafkaError, match="the offset of orders-0 cannot be committed: it has members, rdkafka-"):
            shop.set_offsets("orders", {0: 0})
    assert shop.offsets == {("orders", 0): 2}


def test_group_is_deleted_with_its_offsets(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    shop = handle.group("shop")
    shop.set_offsets("orders", {0: 0})
    with consumer(handle, "shop", "orders") as member:
        while shop.state != "Stable":
            member.poll(0.05)
        with pytest.raises(KafkaError, match="group 'shop' cannot be deleted: it has members, rdkafka-"):
            shop.delete()
    shop.wait_until_empty()

    shop.delete()

    assert not shop.exists
    assert handle.groups == []
    handle.group("shops").set_offsets("orders", {0: 0})
    with pytest.raises(KafkaError, match="group 'shop' cannot be deleted: there is no such group; there is shops"):
        shop.delete()


def test_offsets_of_partitions_that_are_not_there_are_refused(handle: Kafka) -> None:
    """As OffsetCommit does it (§9.1.1): the others are committed."""
    handle.create_topic("orders", partitions=2)
    shop = handle.group("shop")

    with pytest.raises(UnknownTopicOrPartition, match="the offset of none-0 cannot be committed"):
        shop.set_offsets("none", {0: 5})
    assert not shop.exists
    with pytest.raises(UnknownTopicOrPartition, match="the offset of orders-7 cannot be committed"):
        shop.set_offsets("orders", {7: 5, 1: 3})
    assert shop.offsets == {("orders", 1): 3}


async def test_coroutines_have_the_same(bed: Testbed) -> None:
    kafka = KafkaAsync(bed)
    await kafka.create_topic("orders", partitions=1)
    shop = kafka.group("shop")

    await shop.set_offsets("orders", {0: 0})

    assert (await shop.describe()).offsets == {("orders", 0): 0}
    with pytest.raises(KafkaError, match="there is no member"):
        await shop.evict("somebody else")
    with pytest.raises(KafkaError, match="has no members"):
        await shop.rebalance()
    await shop.delete()
    assert await kafka.groups() == []
