"""The labels of groups: their names, and the teams that own them, from the file of `ottla.metrics.group.labels`.

A line of the file is `PREFIX TEAM`: the longest prefix of a group's name says whose it is. The prefix `*` stands for
all other groups. Empty lines and lines that begin with `#` say nothing.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.broker.admin.metrics.exposition import joined, labels
from ottla.broker.runtime import StartError

OTHERS = "*"
PROPERTY = "ottla.metrics.group.labels"


class GroupLabels:
    def __init__(self, teams: Mapping[str, str] | None = None) -> None:
        """By prefix."""
        self._teams = dict(teams or {})
        self._other = self._teams.pop(OTHERS, "")
        self._lengths = sorted({len(prefix) for prefix in self._teams}, reverse=True)

    def of(self, group: str, **others: object) -> str:
        """As text, the labels `others` behind those of the group."""
        team = self._team_of(group)
        return joined(labels(group=group), labels(team=team) if team else "", labels(**others))

    def of_partition(self, group: str, topic: str, index: int) -> str:
        return self.of(group, topic=topic, partition=index)

    def of_topic(self, group: str, topic: str) -> str:
        return self.of(group, topic=topic)

    def _team_of(self, group: str) -> str:
        for length in self._lengths:
            team = self._teams.get(group[:length])
            if team is not None:
                return team
        return self._other


def read_group_labels(path: str | None) -> GroupLabels:
    """Raises StartError for a file that cannot be read, or a line that is not PREFIX TEAM."""
    if path is None:
        return GroupLabels()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise StartError(f"{PROPERTY}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StartError(f"{PROPERTY}: {path} is not text in UTF-8") from None
    return GroupLabels(_parsed(path, lines))


def _parsed(path: str, lines: Iterable[str]) -> dict[str, str]:
    teams: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise StartError(f"{PROPERTY}: line {number} of {path} is not PREFIX TEAM, two words: {line.strip()!r}")
        prefix, team = words
        if teams.setdefault(prefix, team) != team:
            raise StartError(f"{PROPERTY}: line {number} of {path} gives {prefix} another team than {teams[prefix]}")
    return teams
