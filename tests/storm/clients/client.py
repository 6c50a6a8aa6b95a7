"""What the clients of a storm have in common."""

import threading
from dataclasses import dataclass
from pathlib import Path

from tests.histories.files import HistoryFile

# Longer than any storm keeps a partition from being written.
ENDLESS_MS = 300_000
# Records have some weight, so that segments roll and fetches come back full.
PADDING = b" " + b"." * 200


@dataclass(frozen=True)
class Client:
    """One client: its name in the history, where it writes that, and when it has to end."""

    name: str
    bootstrap: str
    records_per_s: int
    delivery_timeout_ms: int
    """How long a producer tries to write a record; after that, whether it is there is not known."""
    history: HistoryFile
    stopping: threading.Event
    directory: Path
    """Of the history's file."""

    @property
    def gives_up(self) -> bool:
        """A producer that gives a record up begins another epoch, and librdkafka sends again in it what was in
        flight in the other: a duplicate that no broker can notice. It is not held to writing once and in order."""
        return self.delivery_timeout_ms < ENDLESS_MS


def to_payload(value: str) -> bytes:
    return value.encode() + PADDING


def to_value(payload: bytes) -> str:
    return payload.partition(b" ")[0].decode()


def to_metadata(commit_id: str) -> str:
    """confluent-kafka ends the metadata of its commits with a zero byte, and reads up to one: so do all, then."""
    return commit_id + "\0"


def to_commit_id(metadata: str | None) -> str:
    return (metadata or "").rstrip("\0")
