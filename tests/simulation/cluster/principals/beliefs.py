"""Which ACLs there have been, and which of them every broker had, at which time.

What the metadata store has committed is parsed here and not by the broker's code: the ACLs of a broker's image have to
be those of the store at the image's revision (I-25).
"""

import json
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.cluster.image import MetadataImage
from ottla.cluster.store import ACLS, Changes, MetadataStore, Snapshot, StoreWatcher, Unavailable
from ottla.security.acl import AclBinding, AclOperation, PatternType, Permission, ResourceType
from tests.simulation.cluster.principals.rights import Rights, Seen
from tests.simulation.judge import Judge
from tests.simulation.loop import Process

AclSet = frozenset[AclBinding]


class StoredAcls:
    """The ACLs that the store has, by the revision at which they were changed."""

    def __init__(self, store: MetadataStore, changed: Callable[[AclSet, AclSet], None], *, is_open: bool) -> None:
        """`changed` is called with what there was before and what there is now."""
        self._is_open = is_open
        self._changed = changed
        self._acls: dict[str, AclBinding] = {}
        self._revisions = [0]
        self._rights = [Rights(frozenset(), is_open=is_open)]
        StoreWatcher(store, ACLS, self._take, self._fail).start()

    @property
    def latest(self) -> AclSet:
        return self._rights[-1].acls

    def at(self, revision: int) -> Rights:
        return self._rights[bisect_right(self._revisions, revision) - 1]

    def _take(self, event: Snapshot | Changes) -> None:
        before = self.latest
        if isinstance(event, Snapshot):
            self._acls = {entry.key: _parsed(entry.value) for entry in event.entries}
        else:
            self._acls |= {entry.key: _parsed(entry.value) for entry in event.puts}
            for key in event.deletes:
                self._acls.pop(key, None)
        self._revisions.append(event.revision)
        self._rights.append(Rights(frozenset(self._acls.values()), is_open=self._is_open))
        self._changed(before, self.latest)

    def _fail(self, why: Unavailable) -> None:
        raise AssertionError(f"a store in this process is always there: {why}")


def _parsed(value: bytes) -> AclBinding:
    fields = json.loads(value)
    return AclBinding(
        ResourceType[fields["resource_type"]],
        fields["name"],
        PatternType[fields["pattern_type"]],
        fields["principal"],
        fields["host"],
        AclOperation[fields["operation"]],
        Permission[fields["permission"]],
    )


class Moment(NamedTuple):
    since_us: int
    rights: Rights
    topics: dict[str, bytes]
    """The id of each."""


class Beliefs:
    """What the image of each life of each broker has said, from when on."""

    def __init__(self, judge: Judge, stored: StoredAcls) -> None:
        self._judge = judge
        self._stored = stored
        self._moments: dict[Process, list[Moment]] = {}
        self._seen: dict[Process, tuple[Any, Any, Rights]] = {}

    def note(self, process: Process, image: MetadataImage) -> None:
        """The process has another image now."""
        rights = self._stored.at(image.revision)
        acls, topics, known = self._seen.get(process, (None, None, None))
        if image.acls is not acls or rights is not known:
            if frozenset(image.acls.values()) != rights.acls:
                wrong = frozenset(image.acls.values()) ^ rights.acls
                how = f"{process.name} is wrong about the ACLs {set(wrong)} at revision {image.revision}"
                self._judge.violated("I-25", how)
        elif image.topics is topics:
            return
        self._seen[process] = image.acls, image.topics, rights
        ids = {name: topic.topic_id for name, topic in image.topics.items()}
        moments = self._moments.setdefault(process, [])
        if not moments or moments[-1].rights is not rights or moments[-1].topics != ids:
            moments.append(Moment(self._judge.trace.now_us(), rights, ids))

    def between(self, process: Process, since_us: int, until_us: int | None) -> list[Moment]:
        """What was in force at some time of these; `until_us` is None where that is not known."""
        moments = self._moments.get(process, [])
        ends = [moment.since_us for moment in moments[1:]] + [None]
        return [
            moment
            for moment, end_us in zip(moments, ends, strict=True)
            if (end_us is None or end_us >= since_us) and (until_us is None or moment.since_us <= until_us)
        ]

    def seen(self, principal: str, host: str, process: Process, since_us: int, until_us: int | None) -> list[Seen]:
        """The same, as one principal sees it."""
        return [
            Seen(moment.rights, principal, host, moment.topics) for moment in self.between(process, since_us, until_us)
        ]
