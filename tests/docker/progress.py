"""Whether clients get on, by the histories that they are writing."""

from pathlib import Path

from tests.cluster_processes import wait_for
from tests.histories.events import Acknowledged, CommitAcknowledged, CommitSent, Event, Sent
from tests.histories.files import from_json, now_us
from tests.storm.settings import PARTITIONS

PROGRESS_WITHIN_S = 60


class Progress:
    """Follows the history files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def wait(self, when: str) -> None:
        """Until each partition has acknowledged a record sent from now on, and the group has committed one."""
        since_us = now_us()
        partition_of: dict[str, int] = {}
        written: set[int] = set()
        committed: set[int] = set()

        def is_done() -> bool:
            for event in self._new_events():
                match event:
                    case Sent(value=key) | CommitSent(commit_id=key) if event.at_us >= since_us:
                        partition_of[key] = event.partition
                    case Acknowledged(value=key) if key in partition_of:
                        written.add(partition_of[key])
                    case CommitAcknowledged(commit_id=key) if key in partition_of:
                        committed.add(partition_of[key])
                    case _:
                        pass
            return len(written) == len(committed) == PARTITIONS

        wait_for(
            is_done,
            PROGRESS_WITHIN_S,
            lambda: f"{when}: records went to partitions {sorted(written)}, commits to {sorted(committed)}",
        )

    def _new_events(self) -> list[Event]:
        events: list[Event] = []
        for path in sorted(self._directory.glob("history-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    events.append(from_json(line.decode()))
                    self._read[path] = self._read.get(path, 0) + len(line)
        return events
