"""What the clients of a storm have in common."""

import threading
from dataclasses import dataclass

from tests.histories.files import HistoryFile

# Records have some weight, so that segments roll and fetches come back full.
PADDING = b" " + b"." * 200


@dataclass(frozen=True)
class Client:
    """One client: its name in the history, where it writes that, and when it has to end."""

    name: str
    bootstrap: str
    records_per_s: int
    history: HistoryFile
    stopping: threading.Event


def to_payload(value: str) -> bytes:
    return value.encode() + PADDING


def to_value(payload: bytes) -> str:
    return payload.partition(b" ")[0].decode()


def to_metadata(commit_id: str) -> str:
    """confluent-kafka ends the metadata of its commits with a zero byte, and reads up to one: so do all, then."""
    return commit_id + "\0"


def to_commit_id(metadata: str | None) -> str:
    return (metadata or "").rstrip("\0")
