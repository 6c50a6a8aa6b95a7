"""The properties that were altered at run time, for one broker or for all, as the metadata store has them."""

from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.encoding import BROKER_CONFIGS, parsed
from ottla.cluster.store import ABSENT, Changes, Snapshot

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

ALL_BROKERS = ""


class _Stored(NamedTuple):
    values: dict[str, str]
    revision: int


_NONE = _Stored({}, ABSENT)


class DynamicConfigs:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # By broker id in digits.
        self._stored: dict[str, _Stored] = {}

    def take(self, event: Snapshot | Changes) -> bool:
        """Remember what the event says of them; whether something is not as it was. Raises StoreError."""
        before = self._stored
        puts = event.entries if isinstance(event, Snapshot) else event.puts
        after = {} if isinstance(event, Snapshot) else dict(before)
        for entry in puts:
            if entry.key.startswith(BROKER_CONFIGS):
                after[entry.key.removeprefix(BROKER_CONFIGS)] = _Stored(parsed(entry), entry.revision)
        if isinstance(event, Changes):
            for key in event.deletes:
                after.pop(key.removeprefix(BROKER_CONFIGS), None) if key.startswith(BROKER_CONFIGS) else None
        self._stored = after
        return after != before

    def revision_of(self, owner: str) -> int:
        return self._stored.get(owner, _NONE).revision

    def apply(self) -> None:
        """Make them the values of this broker's configuration."""
        own = self._stored.get(str(self._broker.node_id), _NONE).values
        self._broker.config.set_dynamic(of_this_broker=own, of_all_brokers=self._stored.get(ALL_BROKERS, _NONE).values)
