"""The broker has no descriptor left: clients take them all, while logs roll and topics are made."""

from contextlib import suppress

from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.siege.attacks.attack import Attack, still_held
from tests.siege.broker import descriptors_of, limit_descriptors
from tests.siege.wire import Wire

SPARE = 40
CONNECTIONS = 100
TOPIC = "siege-descriptors"


class Descriptors(Attack):
    name = "descriptors"

    def run(self) -> None:
        used = descriptors_of(self.target.pid)
        before = limit_descriptors(self.target.pid, used + SPARE)
        try:
            with self.connect(timeout_s=5) as early:
                self._besiege(early)
        finally:
            limit_descriptors(self.target.pid, before)

    def clean_up(self) -> None:
        with self.connect(timeout_s=30) as wire:
            wire.call(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 5)

    def _besiege(self, early: Wire) -> None:
        held: list[Wire] = []
        asked = False
        for _ in self.target.until_over():
            with suppress(OSError):
                held += self.connections(CONNECTIONS)
            if not asked:
                asked = True
                with suppress(OSError):
                    early.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 4)
            # Those that the broker could not take are closed; others take their place at once.
            held = still_held(held)
        for wire in held:
            wire.reset()
