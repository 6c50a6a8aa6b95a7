"""The attacks, by name: `python -m tests.siege.attacks NAME …` runs one in a process of its own."""

from tests.siege.attacks.attack import Attack
from tests.siege.attacks.connections import Connections
from tests.siege.attacks.descriptors import Descriptors
from tests.siege.attacks.full_disk import FullDisk
from tests.siege.attacks.giant_group import GiantGroup
from tests.siege.attacks.half_open import HalfOpen
from tests.siege.attacks.name_floods import GroupNames, ProducerNames, TopicNames
from tests.siege.attacks.parked_fetches import ParkedFetches
from tests.siege.attacks.request_floods import SmallRequests
from tests.siege.attacks.slow_readers import SlowFetchers, SlowMetadata

# In the order in which they are run. Those that leave most behind come last.
ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack
    for attack in (
        SlowFetchers,
        SlowMetadata,
        SmallRequests,
        Connections,
        HalfOpen,
        ParkedFetches,
        GiantGroup,
        GroupNames,
        ProducerNames,
        TopicNames,
        Descriptors,
        FullDisk,
    )
}
