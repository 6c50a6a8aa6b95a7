"""Small clusters for tests, said in few words."""

from typing import Any

from ottla.cluster.controller import ControllerEvent, PartitionChange, RulesOf, TopicRules, decisions
from ottla.cluster.image import BrokerInfo, BrokerState, MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.partition_state import Conditions

TOPIC_ID = b"i" * 16


def state(isr: str = "123", leader: int = 1, replicas: str = "123", **fields) -> PartitionInfo:
    """Replica lists as digits: "12" is (1, 2)."""
    for name in ("elr", "last_known_elr", "adding", "removing"):
        if isinstance(fields.get(name), str):
            fields[name] = digits(fields[name])
    fields = {"leader_epoch": 5, "partition_epoch": 9, **fields}
    return PartitionInfo(leader=leader, replicas=digits(replicas), isr=digits(isr), **fields)


def digits(text: str) -> tuple[int, ...]:
    return tuple(int(digit) for digit in text)


def broker(node_id: int, condition: BrokerState = BrokerState.ACTIVE, **fields) -> BrokerInfo:
    fields = {"epoch": 100 + node_id, "incarnation": f"i{node_id}", "session_revision": 200 + node_id, **fields}
    return BrokerInfo(node_id, f"b{node_id}", 9092, state=condition, **fields)


def image(*states: PartitionInfo, name: str = "t", active: str = "123", others: tuple[BrokerInfo, ...] = (), **fields):
    """One topic with these partitions; brokers 1 to 3, those not in `active` without a session."""
    fields = {"revision": 1000, "controller_id": 1, "controller_epoch": 50, **fields}
    controller_id = fields.pop("controller_id")
    made = MetadataImage("cluster", controller_id, **fields)
    for node_id in (1, 2, 3):
        made = with_broker(
            made,
            broker(node_id) if node_id in digits(active) else broker(node_id, BrokerState.FENCED, session_revision=0),
        )
    for each in others:
        made = with_broker(made, each)
    return made.with_topics({name: TopicInfo(name, TOPIC_ID, tuple(states))})


def with_broker(made: MetadataImage, info: BrokerInfo) -> MetadataImage:
    return made.with_brokers({info.node_id: info})


def decide(made: MetadataImage, event: ControllerEvent, rules_of: RulesOf) -> list[PartitionChange]:
    """All that the controller changes for one event."""
    return [change for batch in decisions(made, [event], rules_of) for change in batch]


def rules(min_isr: int = 2, unclean: bool = False):
    return lambda topic: TopicRules(min_isr, unclean)


def conditions(active: str, *, lost: str = "", min_isr: int = 2, **fields: Any) -> Conditions:
    return Conditions(active=digits(active), min_isr=min_isr, lost_data=digits(lost), **fields)
